"""What a table's margins say, all of them at once."""

from itertools import pairwise

import pytest
from builders import a_surface

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.model.ranges import TIE
from dsd_tune.model.surface import Surface
from dsd_tune.records.profile import Decision
from dsd_tune.solve import decide

KS = (0, 1, 2, 3, 4)
LARGEST = 16
SWEEPS = 100
Cells = set[tuple[int, int]]
"""Batch sizes and Ks."""


def _surface(noise: float, seed: int = 0) -> Surface:
    """One sweep of an engine whose best K falls from 4 to 0, at every batch size."""
    engine = SimulatedEngine(CostLaw(critical_tokens=16, slope_s=0.002), (0.8, 0.7, 0.6, 0.5))
    sizes = tuple(range(1, LARGEST + 1))
    return a_surface(engine, batch_sizes=sizes, ks=KS, start_sd=noise, within_sd=noise, seed=seed)


def _decided(noise: float, seed: int = 0) -> Decision:
    return decide(_surface(noise, seed), LARGEST)


def _own(decision: Decision) -> Cells:
    return set(enumerate(decision.table.dense(), 1))


def _open(decision: Decision) -> Cells:
    """Where a K is not surely worse than the table's."""
    return {(b, rival.k) for rival in decision.rivals for b in range(rival.first, rival.last + 1)}


def _denied(decision: Decision) -> Cells:
    """Where a K is surely worse than the table's."""
    return {(b, k) for b in range(1, LARGEST + 1) for k in KS} - _open(decision) - _own(decision)


TRUTH = _surface(0.0).table_tpot().point


def _excess(decision: Decision, b: int, k: int) -> float:
    """What a K truly costs more than the table's, as a log ratio."""
    return float(TRUTH[b - 1, k] - TRUTH[b - 1, decision.table.k_at(b)])


def test_exact_numbers_leave_only_what_was_not_worth_a_range() -> None:
    """Without noise the only rivals are Ks that are as good or better, by less than a range costs."""
    decision = _decided(0.0)
    assert all(-0.01 < _excess(decision, b, k) <= 0 for b, k in _open(decision))


def test_a_table_is_no_rival_of_its_own() -> None:
    """The K that the table has is not named beside it, nor is one named that loses by far."""
    decision = _decided(0.02)
    assert _open(decision)
    assert not _open(decision) & _own(decision)
    assert {(1, 0), (LARGEST, 4)} <= _denied(decision)


def test_what_is_sure_is_right_all_at_once() -> None:
    """Of 100 sweeps at most 10 call any K worse that is in truth better, at any batch size."""
    decisions = [_decided(0.03, seed) for seed in range(SWEEPS)]
    assert all(map(_denied, decisions))
    assert sum(any(_excess(each, b, k) < 0 for b, k in _denied(each)) for each in decisions) <= SWEEPS / 10


def test_sweeps_differ_only_where_they_said_so() -> None:
    """Of pairs of sweeps many differ, and few in a K that one of them was sure was worse there."""
    pairs = list(pairwise(_decided(0.03, seed) for seed in range(SWEEPS)))
    assert sum(one.table != other.table for one, other in pairs) > SWEEPS / 2
    sure = [_own(one) & _denied(other) or _own(other) & _denied(one) for one, other in pairs]
    assert sum(map(bool, sure)) <= SWEEPS / 10


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_ties_at_boundaries_are_rivals(noise: float) -> None:
    """Between the ends of a tie the K of the other side is a rival, or within 2 %; right outside it is not."""
    decision = _decided(noise)
    cost = _surface(noise).table_tpot().point
    for boundary in decision.boundaries:
        for b in range(1, LARGEST + 1):
            own = decision.table.k_at(b)
            if own not in (boundary.left_k, boundary.right_k) or not boundary.low - 1 <= b <= boundary.high + 1:
                continue
            other = boundary.right_k if own == boundary.left_k else boundary.left_k
            near = abs(cost[b - 1, other] - cost[b - 1, own]) <= TIE
            tied = (b, other) in _open(decision) or bool(near)
            assert tied == (boundary.low <= b <= boundary.high) or b == boundary.after
