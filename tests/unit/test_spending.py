"""Whether an adaptive sweep finds the true optimum, at which cost, and whether its intervals tell the truth."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from worlds import FULL_GRID, Trial, try_world

SEEDS = range(20)


@cache
def _trials() -> tuple[Trial, ...]:
    """The first machines of `benchmarks/simulated_regret.py`."""
    return tuple(try_world(seed) for seed in SEEDS)


@pytest.mark.slow
def test_the_table_is_near_the_true_optimum() -> None:
    """Over dense models and mixtures of experts, cliffs, drift and outliers, it loses 1 % on average, and never 4 %."""
    regrets = [trial.regret for trial in _trials()]
    assert np.mean(regrets) <= 0.01
    assert max(regrets) <= 0.04


@pytest.mark.slow
def test_a_third_of_the_grid_is_enough() -> None:
    """The sweep measures at most a third of the cells that a full grid would."""
    assert max(trial.cells for trial in _trials()) <= FULL_GRID / 3


@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    """Nine in ten 95 % intervals or more hold the truth, even over few machines, whose luck all cells of one share."""
    held = defaultdict(list)
    for trial in _trials():
        for what, those in trial.held.items():
            held[what] += those
    assert {what: bool(np.mean(those) > 0.89) for what, those in held.items()} == dict.fromkeys(held, True)
