from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from builders import a_surface

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.model.claims import claim, regret_of
from dsd_tune.model.ranges import RANGE_PRICE, choose_table, surely_worse
from dsd_tune.model.sampled import Array
from dsd_tune.model.weights import log_uniform_weights

SIZES = (1, 2, 4, 8, 12)
LARGEST = 12
MOST_RANGES = 5
FORBIDDEN = 1e6
"""The regret of a K that may not be used: more than any table saves."""


def _engine(rng: np.random.Generator) -> SimulatedEngine:
    """An engine whose cost law and acceptance are drawn."""
    law = CostLaw(critical_tokens=int(rng.integers(4, 60)), slope_s=float(rng.uniform(0.0002, 0.003)))
    return SimulatedEngine(law, tuple(map(float, rng.uniform(0.2, 0.9, 4))))


def _cuts() -> Iterator[tuple[int, ...]]:
    """Every way to cut the batch sizes into up to five ranges: where each range starts and the last one ends."""
    for count in range(MOST_RANGES):
        for inner in combinations(range(1, LARGEST), count):
            yield (0, *inner, LARGEST)


def _cheapest(regret: Array, weights: Array) -> float:
    """The price of the best table of up to five ranges, by trying them all; each range takes its own best K."""
    upto = np.vstack([np.zeros(regret.shape[1]), np.cumsum(weights[:, None] * regret, axis=0)])
    return min(
        sum(float((upto[end] - upto[start]).min()) for start, end in pairwise(cut)) + RANGE_PRICE * (len(cut) - 2)
        for cut in _cuts()
    )


@pytest.mark.parametrize("seed", range(200))
def test_no_table_of_five_ranges_is_cheaper(seed: int) -> None:
    """On surfaces of random engines the table costs what the best of all tables of up to five ranges costs, or less."""
    rng = np.random.default_rng(seed)
    surface = a_surface(_engine(rng), batch_sizes=SIZES, start_sd=0.01, within_sd=0.01, seed=seed)
    cost = claim(surface, LARGEST, None).log_tpot
    regret, weights = regret_of(cost.point, surely_worse(cost), SIZES), log_uniform_weights(LARGEST)
    table = choose_table(regret, surface.ks, weights)
    columns = [surface.ks.index(k) for k in table.dense()]
    price = float(weights @ regret[np.arange(LARGEST), columns]) + RANGE_PRICE * (len(table.ranges) - 1)
    assert price <= _cheapest(np.where(np.isnan(regret), FORBIDDEN, regret), weights) + 1e-6
