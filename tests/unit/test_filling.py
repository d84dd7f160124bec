import numpy as np

from dsd_tune.model.filling import fill
from dsd_tune.model.sampled import DRAWS, Array, Sampled

SIZES = (1, 4, 16)
NAN = np.nan
MIDDLE = np.array([[0, 0], [1, 1], [0, 0]])


def _filled(point: list[list[float]], may_fill: Array = MIDDLE) -> Array:
    values = np.array(point)
    return fill(Sampled(values, np.broadcast_to(values, (DRAWS, *values.shape))), SIZES, may_fill).point


def test_a_cell_is_read_off_between_its_own() -> None:
    """In the middle of a log scale a column differs from its neighbour by the mean of what it does on either side."""
    assert _filled([[1.0, 2.0], [5.0, NAN], [3.0, 5.0]])[1, 1] == 5.0 + 1.5


def test_drift_of_a_batch_size_drops_out() -> None:
    """A machine that was slower at one batch size is slower for the cells that are filled in there too."""
    calm, slow = (_filled([[1.0, 2.0], [2.0 + drift, NAN], [3.0, 5.0]])[1] for drift in (0.0, 0.3))
    np.testing.assert_allclose(slow - calm, 0.3)


def test_draws_are_filled_like_the_estimate() -> None:
    """A filled cell has draws of its own, from those of the cells it was read off."""
    rng = np.random.default_rng(0)
    point = np.array([[1.0, 2.0], [2.0, NAN], [3.0, 4.0]])
    draws = point + 0.1 * rng.standard_normal((DRAWS, 3, 2))
    filled = fill(Sampled(point, draws), SIZES, MIDDLE)
    expected = draws[:, 1, 0] + (draws[:, 0, 1] - draws[:, 0, 0] + draws[:, 2, 1] - draws[:, 2, 0]) / 2
    np.testing.assert_allclose(filled.draws[:, 1, 1], expected)


def test_nothing_is_claimed_outside() -> None:
    """A column that was not measured on both sides stays empty."""
    assert np.isnan(_filled([[1.0, NAN], [2.0, NAN], [3.0, 5.0]])[1, 1])


def test_what_failed_stays_empty() -> None:
    """Only cells that may be filled are."""
    assert np.isnan(_filled([[1.0, 2.0], [2.0, NAN], [3.0, 5.0]], np.zeros((3, 2)))[1, 1])


def test_an_unmeasured_batch_size_stays_empty() -> None:
    """Without any cell of its own, a batch size is not filled from its neighbours."""
    assert np.isnan(_filled([[1.0, 2.0], [NAN, NAN], [3.0, 5.0]])[1]).all()
