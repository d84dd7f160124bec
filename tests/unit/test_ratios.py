import numpy as np
import pytest

from dsd_tune.model.ratios import judged, mean_ratio, ratio, widening
from dsd_tune.records.comparison import Change, Said
from dsd_tune.records.interval import Interval


def test_equal_runs_have_the_width_of_their_difference() -> None:
    """Two runs that are equally sure have a ratio 1.4 times less sure."""
    one = Interval(1.0, np.exp(-0.1), np.exp(0.1))
    found = ratio(one, one)
    assert found.value == pytest.approx(1.0)
    assert np.log([found.low, found.high]) == pytest.approx([-0.1 * np.sqrt(2), 0.1 * np.sqrt(2)])


def test_each_side_keeps_its_own_distance() -> None:
    """A run that may have been much slower makes the second look faster, not slower."""
    found = ratio(Interval(1.0, 0.99, 2.0), Interval(1.0, 0.99, 1.01))
    assert found.low == pytest.approx(0.5, rel=0.01)
    assert found.high == pytest.approx(1.0, rel=0.02)


def test_intervals_hold_at_the_rate_they_claim() -> None:
    """In 95 % of repeated pairs of noisy runs the interval holds the true ratio; widened, of 20 pairs all do."""
    rng = np.random.default_rng(0)
    runs = np.exp(rng.normal(0, 0.05, (2000, 2)))
    sure = np.exp(1.96 * 0.05)

    def share_missed(wider: float) -> float:
        found = [ratio(Interval(a, a / sure, a * sure), Interval(b, b / sure, b * sure), wider) for a, b in runs]
        return float(np.mean([not r.low <= 1 <= r.high for r in found]))

    assert share_missed(1.0) == pytest.approx(0.05, abs=0.015)
    assert share_missed(widening(20)) < 0.01


def test_means_do_not_pretend_to_average_shared_luck_away() -> None:
    """Cells of one engine share its luck, so the mean of many is as unsure as each."""
    one = Interval(1.1, 1.0, 1.21)
    mean = mean_ratio([one] * 10)
    assert (mean.value, mean.low, mean.high) == pytest.approx((one.value, one.low, one.high))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Interval(1.1, 1.05, 1.15), Said.WORSE),
        (Interval(0.9, 0.85, 0.95), Said.BETTER),
        (Interval(1.0, 0.97, 1.03), Said.SAME),
        (Interval(1.005, 1.001, 1.009), Said.SAME),
        (Interval(1.0, 0.9, 1.1), Said.UNCLEAR),
        (Interval(1.04, 0.99, 1.09), Said.UNCLEAR),
    ],
)
def test_four_words(found: Interval, said: Said) -> None:
    """Significant is slower or faster; the same needs 5 % ruled out; the rest nobody can tell."""
    assert judged(found, less_is_better=True).said is said


def test_more_acceptance_is_better() -> None:
    """Of acceptance more is wanted, of time less."""
    assert judged(Interval(1.1, 1.05, 1.15), less_is_better=False).said is Said.BETTER


def test_ratios_are_positive() -> None:
    """A ratio that may be nothing is none."""
    with pytest.raises(ValueError, match="positive"):
        Change(Interval(0.5, 0.0, 1.0), Said.WORSE)
