import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from builders import a_surface
from hypothesis import given, settings
from hypothesis import strategies as st

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.errors import UsageError
from dsd_tune.model.ranges import K_PRICE, SWITCH_PRICE, TIE, choose_table, regret_beyond_ties, significantly_worse
from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.model.weights import log_uniform_weights
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import Decision, Verdict
from dsd_tune.records.table import Table
from dsd_tune.solve import WORTH_DEPLOYING, decide

SIZES = (1, 2, 4, 8, 16, 32)
LARGEST = 32

STEEP = CostLaw(critical_tokens=12, slope_s=0.0012)
"""Verification turns expensive early: K must fall with the batch size."""
FLAT = CostLaw(critical_tokens=10_000)
"""Verification never costs anything: one K is best everywhere."""
EXPERTS = CostLaw(critical_tokens=200, experts_s=0.2, expert_share=0.15)
"""A mixture of experts: each token of a small batch wakes new ones, so that only a large batch speculates freely."""
CLIFF = CostLaw(critical_tokens=10_000, cliff_tokens=16, cliff_s=0.03)
"""Steps jump where CUDA graphs end."""
PADDED = CostLaw(critical_tokens=16, slope_s=0.001, capture_sizes=(1, 2, 4, 8, 16, 24, 32, 64, 128))
GOOD = (0.8, 0.7, 0.65, 0.6)
POOR = (0.03, 0.02, 0.02, 0.02)


def _engine(law: CostLaw, acceptance: tuple[float, ...] = GOOD) -> SimulatedEngine:
    return SimulatedEngine(law, acceptance)


def _true_log_tpot(engine: SimulatedEngine) -> Array:
    """Shape (batch sizes, Ks), linear in log B between anchors, as the solver may assume between them."""
    ks = range(engine.k_max + 1)
    anchors = np.log([[engine.true_tpot_s(Cell(Arm.DSD, b, k)) for k in ks] for b in SIZES])
    at = np.log(np.arange(1, LARGEST + 1))
    return np.array([np.interp(at, np.log(SIZES), anchors[:, k]) for k in ks]).T


def _regret(engine: SimulatedEngine, table: Table) -> float:
    """Weighted share of TPOT that a table loses to the best K of each batch size, by the truth."""
    truth = _true_log_tpot(engine)
    chosen = truth[np.arange(LARGEST), list(table.dense())]
    return float(log_uniform_weights(LARGEST) @ np.expm1(chosen - truth.min(axis=1)))


def _decide(engine: SimulatedEngine, seed: int = 0, start_sd: float = 0.02, within_sd: float = 0.01) -> Decision:
    return decide(a_surface(engine, start_sd=start_sd, within_sd=within_sd, seed=seed), LARGEST)


LAWS = {"steep": STEEP, "flat": FLAT, "experts": EXPERTS, "cliff": CLIFF, "padded": PADDED}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("acceptance", [GOOD, (0.55, 0.5, 0.45, 0.4)], ids=["good", "fair"])
def test_table_is_near_the_true_optimum(law: CostLaw, acceptance: tuple[float, ...]) -> None:
    """Over seeds the chosen table loses less to the true best K than a tie may, whatever the law."""
    engine = _engine(law, acceptance)
    regrets = [_regret(engine, _decide(engine, seed).table) for seed in range(8)]
    assert np.mean(regrets) < TIE
    assert max(regrets) < 2 * TIE


def test_exact_costs_give_the_true_best() -> None:
    """Without noise each measured batch size gets its true best K, or one that loses no more than a range is worth."""
    engine = _engine(STEEP)
    table = _decide(engine, start_sd=0, within_sd=0).table
    truth = _true_log_tpot(engine)
    assert len(table.ranges) > 1
    for size in SIZES:
        row = truth[size - 1]
        assert math.expm1(row[table.k_at(size)] - row.min()) <= 0.05


def test_k_may_rise_with_the_batch_size() -> None:
    """Nothing assumes that K falls: with a mixture of experts K=0 is best alone, and drafts pay in company."""
    engine = _engine(EXPERTS, (0.35, 0.3))
    decision = decide(a_surface(engine, ks=(0, 1, 2), start_sd=0.01, within_sd=0.005), LARGEST)
    assert decision.table.k_at(1) == 0
    assert decision.table.k_at(LARGEST) > 0


def test_a_cliff_gets_its_boundary() -> None:
    """A K that falls off a cliff between two anchors is left before the second of them."""
    table = _decide(_engine(CLIFF)).table
    assert table.k_at(2) == 4
    assert 4 * (table.k_at(4) + 1) <= 16


def test_steep_costs_deserve_a_table() -> None:
    """Where the best K differs by much from one batch size to another, the verdict is a table."""
    assert _decide(_engine(STEEP), within_sd=0.005).verdict is Verdict.TABLE


@pytest.mark.parametrize("seed", range(8))
def test_one_best_k_is_never_a_table(seed: int) -> None:
    """Where one K is best at every batch size the verdict is that fixed K."""
    decision = _decide(_engine(FLAT), seed)
    assert decision.verdict is Verdict.FIXED
    assert decision.fixed_k > 0


@pytest.mark.parametrize(("within_sd", "most"), [(0.01, 0), (0.02, 0), (0.05, 6)])
def test_noise_alone_makes_no_table(within_sd: float, most: int) -> None:
    """Where every K above 0 is equally good, scatter of 2 % a cell never passes for a table, and 5 % seldom does."""
    verdicts = [decide(_indifferent(within_sd, seed), LARGEST).verdict for seed in range(40)]
    assert verdicts.count(Verdict.TABLE) <= most


@pytest.mark.parametrize("within_sd", [0.02, 0.05])
def test_noise_alone_gains_nothing(within_sd: float) -> None:
    """Where no K differs from no speculation, the best of many lucky cells never passes for a table that pays."""
    same = np.full((len(SIZES), 5), math.log(0.02))
    for seed in range(20):
        surface = _surface(same[:, 0], same, within_sd, np.random.default_rng(seed))
        assert decide(surface, LARGEST).verdict is not Verdict.TABLE


def test_what_noise_seems_to_save_is_not_confirmed() -> None:
    """Where every K above 0 is equally good, a table chosen by noise and judged by other noise saves nothing."""
    decisions = [decide(_indifferent(0.03, seed), LARGEST) for seed in range(20)]
    assert np.mean([d.table_over_fixed.value for d in decisions if d.table_over_fixed]) > 0.01
    confirmed = [d.confirmed_over_fixed for d in decisions if d.confirmed_over_fixed is not None]
    assert abs(np.mean(confirmed)) < 0.004


def test_what_a_table_really_saves_is_confirmed() -> None:
    """Where the best K falls with the batch size, other noise says what the numbers say."""
    decision = _decide(_engine(STEEP), within_sd=0.005)
    assert decision.table_over_fixed
    assert decision.confirmed_over_fixed == pytest.approx(decision.table_over_fixed.value, abs=0.02)


@pytest.mark.parametrize("within_sd", [0.003, 0.006])
def test_noise_alone_adds_no_range(within_sd: float) -> None:
    """Where every K above 0 is equally good, and differences are lost in a tie, the table has one range."""
    for seed in range(20):
        assert decide(_indifferent(within_sd, seed), LARGEST).table.is_constant


def _indifferent(within_sd: float, seed: int) -> Surface:
    """Every K above 0 saves a quarter of TPOT at every batch size."""
    rng = np.random.default_rng(seed)
    truth = np.full((len(SIZES), 5), math.log(0.015))
    truth[:, 0] = math.log(0.021)
    return _surface(np.full(len(SIZES), math.log(0.02)), truth, within_sd, rng)


def _surface(no_spec: Array, tpot: Array, within_sd: float, rng: np.random.Generator) -> Surface:
    """A surface of known log TPOTs (with an acceptance length of 1 throughout) and scatter of a known size."""

    def seen(truth: Array) -> Sampled:
        point = truth + within_sd * rng.standard_normal(truth.shape)
        return Sampled(point, point + within_sd * rng.standard_normal((DRAWS, *truth.shape)))

    zero = np.zeros(tpot.shape[1])
    return Surface(
        batch_sizes=SIZES[: len(tpot)],
        ks=tuple(range(tpot.shape[1])),
        no_spec=seen(no_spec),
        dsd=seen(tpot),
        log_tokens=Sampled(zero, np.zeros((DRAWS, len(zero)))),
        static={},
    )


def test_a_useless_drafter_is_turned_off() -> None:
    """Where no speculation is faster everywhere the verdict is to turn speculation off, and K=0 is no way out."""
    for seed in range(8):
        decision = _decide(_engine(STEEP, POOR), seed, start_sd=0.005)
        assert decision.verdict is Verdict.OFF
        assert decision.verdict.exit_code == 4


def test_too_much_noise_is_no_verdict() -> None:
    """Where the intervals hold both a gain and none, the verdict is that it cannot be told, and what would help."""
    decision = _decide(_engine(STEEP, (0.3, 0.2, 0.2, 0.2)), start_sd=0.15)
    assert decision.verdict is Verdict.UNCLEAR
    assert "--starts" in decision.reason


random_points = st.lists(st.floats(-0.3, 0.3), min_size=18, max_size=18)


@given(random_points, st.floats(0.001, 0.1), st.integers(0, 99))
@settings(max_examples=60)
def test_verdict_agrees_with_its_intervals(points: list[float], noise: float, seed: int) -> None:
    """What is advised is proved to save a percent of TPOT, and speculation is turned off only where nothing may."""
    grid = np.array(points).reshape(3, 6) - 4
    decision = decide(_surface(grid[:, 0], grid[:, 1:], noise, np.random.default_rng(seed)), SIZES[2])
    gains = {Verdict.TABLE: decision.table_gain, Verdict.FIXED: decision.fixed_gain}
    match decision.verdict:
        case Verdict.OFF:
            assert all(gain.high < WORTH_DEPLOYING for gain in gains.values())
        case Verdict.UNCLEAR:
            assert any(gain.high >= WORTH_DEPLOYING for gain in gains.values())
        case advised:
            assert gains[advised].low > 0
            assert gains[advised].value >= WORTH_DEPLOYING
    if decision.verdict is Verdict.TABLE:
        assert not decision.table.is_constant
        assert decision.table_over_fixed.low > 0 or decision.fixed_gain.low <= 0 or decision.fixed_gain.value < 0.01


@given(random_points, st.floats(0.001, 0.1))
@settings(max_examples=30)
def test_table_is_closed_at_the_largest_batch_size(points: list[float], noise: float) -> None:
    """Every table covers 1 to the largest batch size served, and each of its boundaries is described."""
    grid = np.array(points).reshape(3, 6) - 4
    decision = decide(_surface(grid[:, 0], grid[:, 1:], noise, np.random.default_rng(0)), SIZES[2])
    assert decision.table.max_num_seqs == SIZES[2]
    assert [b.after for b in decision.boundaries] == [r.last for r in decision.table.ranges[:-1]]
    assert all(b.low <= b.after <= b.high for b in decision.boundaries)


def _table(tpot: Sampled, ks: tuple[int, ...], weights: Array) -> Table:
    return choose_table(regret_beyond_ties(tpot.point, significantly_worse(tpot)), ks, weights)


def _priced(regret: Array, weights: Array, dense: tuple[int, ...]) -> float:
    changes = sum(a != b for a, b in pairwise(dense))
    lost = float(weights @ regret[np.arange(len(dense)), list(dense)])
    return lost + SWITCH_PRICE * changes + K_PRICE * (len(set(dense)) - 1)


@given(st.lists(st.integers(0, 12), min_size=15, max_size=15))
@settings(max_examples=60)
def test_no_table_is_cheaper(hundredths: list[int]) -> None:
    """No table at all, out of every possible one, has less regret for its ranges and Ks."""
    excess = np.array(hundredths).reshape(5, 3) / 100
    excess -= excess.min(axis=1, keepdims=True)
    tpot = Sampled(np.log1p(excess), np.broadcast_to(np.log1p(excess), (2, 5, 3)))
    weights = log_uniform_weights(5)
    regret = np.expm1(tpot.point)
    found = _priced(regret, weights, _table(tpot, (0, 1, 2), weights).dense())
    best = min(_priced(regret, weights, dense) for dense in product(range(3), repeat=5))
    assert found == pytest.approx(best, abs=1e-7)


def test_ties_go_to_the_smaller_k() -> None:
    """Of Ks that cannot be told apart the smaller one is taken: it needs fewer draft slots and graphs."""
    rng = np.random.default_rng(0)
    tpot = _surface(np.zeros(6), np.array([[0.1, 0.005, 0.0, 0.005]] * 6), 0.02, rng).dsd
    exact = Sampled(np.array([[0.1, 0.005, 0.0, 0.005]] * 6), tpot.draws)
    assert _table(exact, (0, 1, 2, 3), log_uniform_weights(6)).dense() == (1,) * 6


def test_a_gain_below_the_price_of_a_range_buys_none() -> None:
    """A K that saves less than a range costs does not get one, however sure the saving is."""
    excess = np.zeros((8, 2))
    excess[:7, 1] = excess[7, 0] = 0.03
    tpot = Sampled(np.log1p(excess), np.broadcast_to(np.log1p(excess), (2, 8, 2)))
    assert _table(tpot, (1, 2), log_uniform_weights(8)).dense() == (1,) * 8


def test_weights_count_every_doubling_alike() -> None:
    """The batch sizes from 8 to 15 weigh about what those from 16 to 31 weigh."""
    weights = log_uniform_weights(64)
    assert weights.sum() == pytest.approx(1)
    assert weights[7:15].sum() == pytest.approx(weights[15:31].sum(), rel=0.05)


def _without(surface: Surface, *missing: tuple[int, int]) -> Surface:
    """The surface without the table's cells (batch size, K)."""
    point, draws = surface.dsd.point.copy(), surface.dsd.draws.copy()
    for size, k in missing:
        row, column = surface.batch_sizes.index(size), surface.ks.index(k)
        point[row, column] = np.nan
        draws[:, row, column] = np.nan
    return replace(surface, dsd=Sampled(point, draws))


def test_a_k_that_failed_is_not_used_where_it_failed() -> None:
    """A K that ran out of memory at the largest batch size is kept below, and never claimed past its neighbours."""
    surface = _without(a_surface(_engine(FLAT)), (32, 4), (16, 4))
    decision = decide(surface, LARGEST)
    assert decision.table.k_at(8) == 4
    assert 4 not in decision.table.dense()[8:]
    assert decision.boundaries[0].margin is None


def test_a_fixed_k_must_run_everywhere() -> None:
    """A K that failed somewhere is no candidate for a fixed K, however good it is elsewhere."""
    assert decide(a_surface(_engine(FLAT)), LARGEST).fixed_k == 4
    assert decide(_without(a_surface(_engine(FLAT)), (32, 4)), LARGEST).fixed_k == 3


def test_the_largest_batch_size_must_be_measured() -> None:
    """A table is not closed beyond what was measured."""
    with pytest.raises(UsageError, match="up to 33 are not all covered"):
        decide(a_surface(_engine(FLAT)), 33)


def test_a_batch_size_without_any_k_is_refused() -> None:
    """Where every K failed at a batch size there is no table to choose."""
    surface = _without(a_surface(_engine(FLAT)), *((8, k) for k in range(5)))
    with pytest.raises(UsageError, match="not all covered"):
        decide(surface, LARGEST)


def test_static_engines_can_beat_the_table() -> None:
    """A fixed K whose own engine is much faster than the table's wins, though the table's Ks are better chosen."""
    engine = _engine(STEEP)
    surface = a_surface(engine, within_sd=0.002)
    fixed_k = decide(surface, LARGEST).fixed_k
    fast = surface.dsd[:, fixed_k] - surface.no_spec
    surface.static[fixed_k] = Sampled(fast.point - 0.3, fast.draws - 0.3)
    decision = decide(surface, LARGEST)
    assert decision.verdict is Verdict.FIXED
    assert decision.fixed_k == fixed_k
    assert decision.table_over_fixed.high < 0


def test_a_fixed_k_is_only_advised_where_it_ran() -> None:
    """Once a fixed K ran in its own engine and was slow there, no other is inferred from the table's engine."""
    surface = a_surface(_engine(FLAT), within_sd=0.002)
    slow = surface.dsd[:, 4] - surface.no_spec
    surface.static[4] = Sampled(slow.point + 0.4, slow.draws + 0.4)
    decision = decide(surface, LARGEST)
    assert decision.fixed_k == 4
    assert decision.fixed_gain.value < decision.table_gain.value


def test_a_fixed_k_that_failed_leaves_the_others_open() -> None:
    """A fixed K whose own engine failed somewhere is no candidate, and the others are read off the table's engine."""
    surface = a_surface(_engine(FLAT), within_sd=0.002)
    broken = np.where(np.arange(6) == 5, np.nan, 0.0)
    surface.static[4] = Sampled(broken, np.broadcast_to(broken, (DRAWS, 6)))
    assert decide(surface, LARGEST).fixed_k == 3


def test_losing_batch_sizes_are_named() -> None:
    """A table that pays on the whole says at which batch sizes no speculation would be faster."""
    law = CostLaw(critical_tokens=12, slope_s=0.0012, tax_request_s=0.0002)
    decision = _decide(_engine(law), start_sd=0.002, within_sd=0.002)
    assert decision.verdict is Verdict.TABLE
    (stretch,) = decision.losing
    assert stretch.last == LARGEST
    assert stretch.loss.low > 0


def test_fixed_k_names_its_worst_loss() -> None:
    """How much a fixed K loses at its worst batch size is told beside its mean, to judge it by a workload's tail."""
    decision = _decide(_engine(STEEP), start_sd=0, within_sd=0)
    truth = np.log([[_engine(STEEP).true_tpot_s(Cell(Arm.DSD, b, k)) for k in range(5)] for b in SIZES])
    off = np.log([_engine(STEEP).true_tpot_s(Cell(Arm.NO_SPEC, b, 0)) for b in SIZES])
    at_anchors = -np.expm1(np.minimum(truth.min(axis=1), off) - truth[:, decision.fixed_k])
    assert decision.fixed_worst_loss == pytest.approx(at_anchors.max(), rel=0.05)


@given(st.sets(st.tuples(st.sampled_from(SIZES), st.integers(0, 4)), max_size=20), st.integers(0, 9))
@settings(max_examples=60)
def test_any_cells_may_fail(missing: set[tuple[int, int]], seed: int) -> None:
    """Whichever cells failed, there is a table of measured cells only, or one sentence that says what is missing."""
    surface = _without(a_surface(_engine(STEEP), within_sd=0.01, seed=seed), *missing)
    try:
        table = decide(surface, LARGEST).table
    except UsageError:
        return
    assert not {(size, table.k_at(size)) for size in SIZES} & missing
