import numpy as np
import pytest

from dsd_tune.model.sampled import DRAWS, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.model.undecided import Undecided, undecided


def _surface(costs: list[list[float]], noise: float = 0.0) -> Surface:
    """TPOT by batch size 1, 4, 16 and K from 0, with an acceptance length of 1 and the same scatter in every cell."""
    rng = np.random.default_rng(0)
    point = np.log(np.array(costs))
    zero = np.zeros(point.shape[1])
    return Surface(
        batch_sizes=(1, 4, 16),
        ks=tuple(range(point.shape[1])),
        no_spec=Sampled(point[:, 0], np.broadcast_to(point[:, 0], (DRAWS, 3))),
        dsd=Sampled(point, point + noise * rng.standard_normal((DRAWS, *point.shape))),
        log_tokens=Sampled(zero, np.zeros((DRAWS, len(zero)))),
        static={},
    )


def _open(costs: list[list[float]], noise: float = 0.0, target: float = 0.01, limit: int | None = None) -> Undecided:
    return undecided(_surface(costs, noise), 16, limit, target)


def test_one_sure_k_leaves_nothing_open() -> None:
    """Where one K is best everywhere by far, nothing is expected to be lost and nothing is worth a look."""
    found = _open([[2.0, 1.0]] * 3, noise=0.01)
    assert found.regret == pytest.approx(0, abs=1e-6)
    assert found.is_settled
    assert found.in_play == {1: (1,), 4: (1,), 16: (1,)}


def test_regret_is_what_the_draws_say() -> None:
    """Two equal Ks with independent errors: the best of a pair of draws is ahead by 1.13 deviations of one."""
    found = _open([[1.0, 1.0]] * 3, noise=0.02)
    assert found.regret == pytest.approx(1.128 * 0.02 / 2, rel=0.15)


def test_less_noise_less_regret() -> None:
    """Regret falls as the numbers get surer."""
    regrets = [_open([[1.0, 0.99]] * 3, noise).regret for noise in (0.05, 0.02, 0.005)]
    assert regrets[0] > 2 * regrets[1] > 4 * regrets[2] > 0


def test_a_few_wild_draws_do_not_rule() -> None:
    """Draws far beyond anything seen, as few blocks leave them, count as twice as slow and no more."""
    surface = _surface([[1.0, 1.5]] * 3, noise=0.01)
    surface.dsd.draws[:10, :, 0] += 40
    assert undecided(surface, 16, None, 0.01).regret == pytest.approx(0.01, rel=0.01)


def test_ties_are_to_be_looked_at_again() -> None:
    """Where two Ks cannot be told apart, both are in play and that stop is repeated; the third is not."""
    found = _open([[1.0, 1.0, 2.0], [1.0, 3.0, 2.0], [1.0, 3.0, 2.0]], noise=0.06)
    assert found.in_play == {1: (0, 1), 4: (0,), 16: (0,)}
    assert found.repeat == {1: (0, 1)}


def test_under_the_target_nothing_is_repeated() -> None:
    """A tie that costs less than the target allows is left alone."""
    assert _open([[1.0, 1.0]] * 3, noise=0.02, target=0.05).repeat == {}


def test_a_change_of_k_is_looked_into_half_way() -> None:
    """Between two batch sizes with unlike Ks, the middle on a log scale is asked for, at the Ks that could win."""
    found = _open([[2.0, 1.0, 1.9], [2.0, 1.0, 1.9], [1.0, 2.0, 1.9]], noise=0.01)
    assert found.refine == {8: (0, 1, 2)}
    assert found.regret > 0.01


def test_a_change_within_the_noise_is_not_looked_into() -> None:
    """Where the two Ks are tied on both sides of a boundary, it does not matter where it lies."""
    found = _open([[1.0, 0.97], [1.0, 0.97], [0.97, 1.0]], noise=0.05)
    assert found.refine == {}


def test_the_widest_loss_comes_first() -> None:
    """Of several gaps the one that may cost most is named first."""
    found = _open([[1.5, 1.0], [1.0, 1.2], [2.0, 1.0]], noise=0.001)
    assert list(found.refine) == [8, 2]


@pytest.mark.parametrize(("limit", "sizes"), [(None, set()), (16, {8, 9}), (10, {5, 6}), (8, {5}), (64, set())])
def test_both_sides_of_a_capture_limit_are_looked_at(limit: int | None, sizes: set[int]) -> None:
    """The last batch size with CUDA graphs and the first without are asked for, if they are not measured.

    Only for a K in play: K=1 has two tokens a request; K=0 is far behind.
    """
    found = _open([[2.0, 1.0]] * 3, noise=0.01, limit=limit)
    assert set(found.refine) == sizes


def test_a_k_out_of_play_has_no_limit() -> None:
    """A limit of CUDA graphs matters only to a K that could win there."""
    found = _open([[2.0, 1.0, 9.0, 9.0, 9.0]] * 3, noise=0.01, limit=30)
    assert set(found.refine) == {15}


def test_a_k_that_failed_is_no_candidate() -> None:
    """A cell that could not be measured is neither in play nor asked for."""
    found = _open([[1.0, np.nan]] * 3, noise=0.01)
    assert found.in_play == {1: (0,), 4: (0,), 16: (0,)}
    assert found.is_settled
