from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from builders import a_surface

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.model.claims import claim, regret_of
from dsd_tune.model.ranges import K_PRICE, MISS_PRICE, SWITCH_PRICE, TIE, choose_table, significantly_worse
from dsd_tune.model.sampled import Array
from dsd_tune.model.weights import log_uniform_weights
from dsd_tune.records.table import Table

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
    """The price of the best table of up to five ranges, by trying them all with every set of Ks."""
    upto = np.vstack([np.zeros(regret.shape[1]), np.cumsum(weights[:, None] * regret, axis=0)])
    sets = np.array(list(product((False, True), repeat=regret.shape[1])))[1:]
    closed = np.where(sets, 0.0, np.inf)
    prices = (
        # Within a set of Ks each range takes its own best one.
        (np.diff(upto[list(cut)], axis=0)[:, None] + closed).min(axis=2).sum(axis=0) + SWITCH_PRICE * (len(cut) - 2)
        for cut in _cuts()
    )
    return float(min((price + K_PRICE * (sets.sum(axis=1) - 1)).min() for price in prices))


def _price(table: Table, regret: Array, weights: Array, ks: tuple[int, ...]) -> float:
    columns = [ks.index(k) for k in table.dense()]
    lost = float(weights @ regret[np.arange(len(regret)), columns])
    return lost + SWITCH_PRICE * (len(table.ranges) - 1) + K_PRICE * (len(table.ks) - 1)


@pytest.mark.parametrize("seed", range(200))
def test_no_table_of_five_ranges_is_cheaper(seed: int) -> None:
    """On surfaces of random engines the table costs what the best of all tables of up to five ranges costs, or less."""
    rng = np.random.default_rng(seed)
    surface = a_surface(_engine(rng), batch_sizes=SIZES, start_sd=0.01, within_sd=0.01, seed=seed)
    cost = claim(surface, LARGEST, None).log_tpot
    regret, weights = regret_of(cost.point, significantly_worse(cost), SIZES), log_uniform_weights(LARGEST)
    price = _price(choose_table(regret, surface.ks, weights), regret, weights, surface.ks)
    assert price <= _cheapest(np.where(np.isnan(regret), FORBIDDEN, regret), weights) + 1e-6


EVEN = np.full(8, 1 / 8)


def _losses(*best: int, loss: float, ks: int) -> Array:
    """Each batch size loses nothing at its best K, and `loss` at any other."""
    regret = np.full((len(best), ks), loss)
    regret[np.arange(len(best)), best] = 0
    return regret


def test_a_k_that_comes_back_is_paid_once() -> None:
    """A K that pays again in large batches costs a switch more, not another K: its graphs are there already."""
    best = (1, 1, 1, 0, 0, 0, 0, 1)
    lost = (K_PRICE + SWITCH_PRICE) / 2 * 8
    assert choose_table(_losses(*best, loss=lost, ks=2), (0, 3), EVEN).as_lists() == [[1, 3, 3], [4, 7, 0], [8, 8, 3]]
    thrice = (1, 1, 1, 0, 0, 0, 0, 2)
    assert len(choose_table(_losses(*thrice, loss=lost, ks=3), (0, 3, 5), EVEN).ks) == 2


@pytest.mark.parametrize(
    ("missed", "loss", "k"), [(1.0, TIE * 0.9, 3), (1.0, TIE * 1.1, 2), (0.2, MISS_PRICE * 0.3, 2)]
)
def test_graphs_that_would_be_missed_lose_a_tie(missed: float, loss: float, k: int) -> None:
    """Of two Ks the one that keeps its graphs is taken if it loses less than they count for, and less than a tie."""
    regret = _losses(*[0] * 8, loss=loss, ks=2)
    assert choose_table(regret, (2, 3), EVEN, lambda table: missed * (2 in table.ks)).dense() == (k,) * 8
    assert choose_table(regret, (2, 3), EVEN).dense() == (2,) * 8


def test_many_ks_are_all_open_to_a_table() -> None:
    """Of sixteen Ks those are found that are best somewhere, wherever they stand."""
    best = (15, 15, 15, 15, 9, 9, 9, 9)
    assert choose_table(_losses(*best, loss=0.1, ks=16), tuple(range(16)), EVEN).dense() == best


def test_ks_that_failed_here_and_there_still_make_a_table() -> None:
    """Where each batch size has one K that ran, the table has them all, be they more than can be tried together."""
    regret = np.full((10, 10), np.nan)
    np.fill_diagonal(regret, 0.0)
    assert choose_table(regret, tuple(range(10)), np.full(10, 0.1)).dense() == tuple(range(10))


@pytest.mark.parametrize("seed", range(20))
def test_ks_that_another_beats_everywhere_change_nothing(seed: int) -> None:
    """Of a dozen Ks, eight cost more than K=0 at every batch size: the table is the one that the other four make."""
    rng = np.random.default_rng(seed)
    useful = rng.uniform(0, 0.2, (LARGEST, 4)) * rng.integers(0, 2, (LARGEST, 4))
    worse = useful[:, :1] + rng.uniform(0.001, 0.1, (LARGEST, 8))
    weights = log_uniform_weights(LARGEST)
    table = choose_table(np.hstack([useful, worse]), range(12), weights)
    assert table == choose_table(useful, range(4), weights)
    assert _price(table, useful, weights, tuple(range(4))) <= _cheapest(useful, weights) + 1e-9
