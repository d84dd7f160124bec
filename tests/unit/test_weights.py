import numpy as np
import pytest

from dsd_tune.errors import UsageError
from dsd_tune.model.aim import MISS, Aim
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.weights import from_histogram, log_uniform_weights, up_to_peak
from dsd_tune.records.objective import Objective

FLAT = np.zeros(64)


def test_a_histogram_counts_as_often_as_it_says() -> None:
    """Batch sizes weigh by their share of the histogram, repeated lines add up, and the others weigh nothing."""
    weights = from_histogram(8, [(2, 10), (8, 20), (2, 10)])
    np.testing.assert_allclose(weights.shares[[0, 1, 7]], [0, 0.5, 0.5])
    assert from_histogram(8, [(2, 10), (4, 30)]).usual == 4


def test_a_histogram_above_the_grid_is_told() -> None:
    """What lies above the last measured batch size is left out aloud, and refused where it is most of it."""
    assert "without the 25.0% of it above 8" in from_histogram(8, [(4, 3), (9, 1)]).said
    with pytest.raises(UsageError, match="75% of the histogram lies above 8"):
        from_histogram(8, [(4, 1), (9, 3)])


def test_above_the_peak_nothing_counts() -> None:
    """Up to the peak every doubling counts alike, above it nothing does."""
    shares = up_to_peak(64, 16).shares
    np.testing.assert_allclose(shares[:16], log_uniform_weights(16))
    assert shares[16:].sum() == 0


def test_tokens_weigh_more_where_there_are_more() -> None:
    """For throughput a batch size weighs by its time and by the tokens it yields in it."""
    by_time, by_tokens = (Aim(objective=o).weights(64, FLAT).shares for o in Objective)
    np.testing.assert_allclose(by_tokens / by_tokens[0], by_time / by_time[0] * np.arange(1, 65))


def test_a_late_token_is_dear() -> None:
    """For goodput a TPOT above the limit costs as much as ten times itself, one below it what it is."""
    tpot = np.log([0.02, 0.04])
    cost = Aim(slo_s=0.03).cost(Sampled(tpot, tpot[None]))
    np.testing.assert_allclose(np.exp(cost.point), [0.02, 0.04 * MISS])


def test_contradictory_aims_are_refused() -> None:
    """A histogram has its own peak, and a limit of TPOT is positive."""
    with pytest.raises(ValueError, match="own peak"):
        Aim(histogram=((1, 1.0),), peak=4)
    with pytest.raises(ValueError, match="positive"):
        Aim(slo_s=0)
