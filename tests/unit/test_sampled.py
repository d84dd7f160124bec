import numpy as np
import pytest

from dsd_tune.model.sampled import DRAWS, Sampled


def _drawn(mean: float, spread: float, seed: int = 0) -> Sampled:
    return Sampled(np.asarray(mean), mean + spread * np.random.default_rng(seed).standard_normal(DRAWS))


def test_interval_is_central_and_95_percent() -> None:
    """The interval of a normal estimate reaches about two standard deviations to either side."""
    interval = _drawn(1.0, 0.1).interval()
    assert (interval.value - interval.low) / 0.1 == pytest.approx(1.96, rel=0.15)
    assert (interval.high - interval.value) / 0.1 == pytest.approx(1.96, rel=0.15)


def test_interval_holds_its_value() -> None:
    """An interval is stretched to its own estimate where the draws lie to one side."""
    interval = Sampled(np.asarray(0.0), np.full(DRAWS, 2.0)).interval()
    assert (interval.low, interval.value, interval.high) == (0.0, 0.0, 2.0)


def test_common_luck_cancels() -> None:
    """Draws are joint: what two numbers share has no part in their difference."""
    one = _drawn(1.0, 0.5)
    other = Sampled(one.point + 0.25, one.draws + 0.25)
    assert (other - one).interval().low == pytest.approx(0.25)
    assert (other - one).interval().high == pytest.approx(0.25)


def test_index_leaves_the_axis_of_draws() -> None:
    """Selecting estimates selects the same ones in every draw."""
    grid = Sampled(np.arange(6.0).reshape(2, 3), np.arange(6.0 * DRAWS).reshape(DRAWS, 2, 3))
    assert grid[1].draws.shape == (DRAWS, 3)
    assert grid[:, 2].point.tolist() == [2.0, 5.0]
    np.testing.assert_array_equal(grid[1, 2].draws, grid.draws[:, 1, 2])
    np.testing.assert_array_equal(grid[None, 1].draws, grid.draws[:, None, 1])


def test_map_moves_values_and_limits_alike() -> None:
    """A monotone function of an estimate has the function of its limits for limits."""
    log = _drawn(0.0, 0.3)
    plain = log.map(np.exp)
    assert plain.interval().value == pytest.approx(1.0)
    assert plain.interval().high == pytest.approx(np.exp(log.interval().high), rel=0.01)


def test_detectable_is_what_four_of_five_runs_would_tell() -> None:
    """Of runs whose truth is the detectable difference, four in five have an interval without 0."""
    sd = 0.1
    comparison = _drawn(0.0, sd).comparison()
    assert comparison.detectable == pytest.approx((1.96 + 0.84) * sd, rel=0.1)
    half = (comparison.high - comparison.low) / 2
    runs = comparison.detectable + sd * np.random.default_rng(1).standard_normal(2000)
    assert np.mean(runs - half > 0) == pytest.approx(0.8, abs=0.06)


def test_few_starts_detect_little() -> None:
    """With three runs at a scatter of 2 % a difference between two arms must reach 6 to 7 % to be told."""
    n, cv = 3, 0.02
    tails = np.random.default_rng(0).standard_t(2 * n - 2, DRAWS)
    comparison = Sampled(np.asarray(0.0), cv * np.sqrt(2 / n) * tails).comparison()
    assert comparison.detectable == pytest.approx(0.061, abs=0.006)


def test_reach_holds_for_all_numbers_at_once() -> None:
    """In 93 to 97 of 100 experiments no true value of many, some of them akin, lies beyond its reach."""
    rng = np.random.default_rng(0)
    mixing = np.hstack([rng.standard_normal((12, 12)), 3 * np.ones((12, 2))])
    held = 0
    for _ in range(1000):
        errors = mixing @ rng.standard_normal(14)
        draws = errors + (mixing @ rng.standard_normal((14, DRAWS))).T
        held += bool((np.abs(errors) <= Sampled(errors, draws).reach()).all())
    assert 930 <= held <= 970


def test_reach_of_what_is_exact_or_unknown() -> None:
    """What does not vary has no reach, what is not known has none to give, and neither widens that of others."""
    one = _drawn(1.0, 0.1)
    draws = np.stack([one.draws, np.full(DRAWS, 2.0), np.full(DRAWS, np.nan)], axis=1)
    reach = Sampled(np.array([1.0, 2.0, np.nan]), draws).reach()
    assert reach[0] == pytest.approx(0.196, rel=0.1)
    assert reach[1] == 0
    assert np.isnan(reach[2])
