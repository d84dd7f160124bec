import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeping import Shelf, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.errors import UsageError
from dsd_tune.fit import Fit
from dsd_tune.records.environment import GraphUse
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Block, Cell
from dsd_tune.records.profile import Profile, Source, Verdict
from dsd_tune.solve import decide
from dsd_tune.storage import codec

LAW = CostLaw(critical_tokens=12, slope_s=0.0012)
STATIC_LAW = replace(LAW, graphs_static=0.8)
NOISE = Noise(start_sd=0.02, drift_per_hour=0.0, step_sd=0.02)
SEEDS = range(6)


def _engine(seed: int = 0, law: CostLaw = LAW, **changed: Any) -> SimulatedEngine:
    options: dict[str, Any] = {"noise": NOISE, "seed": seed, "max_num_seqs": 16, "alive_together": 8}
    return SimulatedEngine(law, (0.7, 0.6), **options | changed)


def _swept(engine: SimulatedEngine, **changed: Any) -> Shelf:
    return swept(engine, **{"starts": 3, "rounds": 2, "steps": 8} | changed)


def _profile(shelf: Shelf) -> Profile:
    fit = Fit(shelf.manifest, shelf.samples())
    return fit.profile(decide(fit.surface, shelf.manifest.request.max_num_seqs), 2.5, "0.1.0")


@pytest.fixture(autouse=True, scope="module")
def _few_refits() -> Iterator[None]:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsd_tune.model.cost._REFITS", 5)
        yield


@pytest.fixture(scope="module")
def profiles(_few_refits: None) -> list[Profile]:
    """Profiles of one engine under several seeds."""
    return [_profile(_swept(_engine(seed))) for seed in SEEDS]


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    """One finished run."""
    return _swept(_engine())


def _share_held(pairs: list[tuple[Interval, float]]) -> float:
    return sum(i.low <= truth <= i.high for i, truth in pairs) / len(pairs)


def test_step_times_hold_the_truth(profiles: list[Profile]) -> None:
    """Most 95 % intervals of step time hold the engine's true one."""
    pairs = [(e.step_s, _engine().true_step_s(e.cell)) for p in profiles for e in p.cells]
    assert len(pairs) == len(profiles) * 3 * 4
    assert _share_held(pairs) > 0.85


def test_tpots_hold_the_truth(profiles: list[Profile]) -> None:
    """Most 95 % intervals of TPOT hold the engine's true one."""
    assert _share_held([(e.tpot_s, _engine().true_tpot_s(e.cell)) for p in profiles for e in p.cells]) > 0.85


def test_gains_hold_the_truth(profiles: list[Profile]) -> None:
    """Most 95 % intervals of the gain over no speculation hold the true gain."""

    def truth(cell: Cell) -> float:
        return 1 - _engine().true_tpot_s(cell) / _engine().true_tpot_s(Cell(Arm.NO_SPEC, cell.batch_size, 0))

    assert _share_held([(e.gain, truth(e.cell)) for p in profiles for e in p.cells]) > 0.85


def test_acceptance_holds_the_truth(profiles: list[Profile]) -> None:
    """Rates by position and acceptance lengths come back within their intervals in most seeds."""
    lengths = [(a.tokens, _engine().true_tokens_per_step(a.k)) for p in profiles for a in p.acceptance_lengths]
    rates = [(a.rate, float(np.prod((0.7, 0.6)[: a.position]))) for p in profiles for a in p.acceptance]
    assert _share_held(lengths) > 0.8
    assert _share_held(rates) > 0.8


def test_tax_of_k_0_holds_the_truth(profiles: list[Profile]) -> None:
    """What the table's engine costs at K=0 over no speculation comes back within its interval in most seeds."""

    def truth(size: int) -> float:
        off, on = (LAW.step_s(Cell(arm, size, 0)) for arm in (Arm.NO_SPEC, Arm.DSD))
        return on / off - 1

    assert _share_held([(t.share, truth(t.batch_size)) for p in profiles for t in p.k0_tax]) > 0.85


def test_crossovers_hold_the_truth(profiles: list[Profile]) -> None:
    """Where K=2 stops paying comes back within its interval in most seeds; K=1, which always pays, has none."""
    engine = _engine()
    anchors = np.log((1, 4, 16))
    tpot = [[np.log(engine.true_tpot_s(c)) for c in (Cell(Arm.NO_SPEC, b, 0), Cell(Arm.DSD, b, 2))] for b in (1, 4, 16)]
    gain = np.array([off - on for off, on in tpot])
    assert gain[1] > 0 > gain[2]
    truth = float(np.exp(anchors[1] + gain[1] / (gain[1] - gain[2]) * (anchors[2] - anchors[1])))
    crossovers = [c for p in profiles for c in p.crossovers if c.k == 2]
    assert all(c.pays for c in crossovers)
    assert _share_held([(c.at, truth) for c in crossovers if c.at]) > 0.8


def test_the_base_has_no_gain_over_itself(profiles: list[Profile]) -> None:
    """No speculation saves nothing over no speculation, exactly."""
    base = [e.gain for p in profiles for e in p.cells if e.cell.arm is Arm.NO_SPEC]
    assert set(base) == {Interval(0.0, 0.0, 0.0)}


def test_spreads_are_told(profiles: list[Profile]) -> None:
    """The profile tells the planted luck of an engine start from the scatter of blocks, and claims no drift."""
    between = np.sqrt(np.mean([p.variance.between_starts**2 for p in profiles]))
    assert 0.75 < between / NOISE.start_sd < 2
    assert all(p.variance.between_blocks < NOISE.step_sd for p in profiles)
    assert all(p.variance.drift < NOISE.start_sd for p in profiles)


def test_verdicts_agree_over_seeds(profiles: list[Profile]) -> None:
    """The same engine gets the same verdict whichever starts it happened to have."""
    assert len({p.decision.verdict for p in profiles}) == 1
    assert {p.decision.table.k_at(1) for p in profiles} == {2}


def test_tables_are_near_the_true_optimum(profiles: list[Profile]) -> None:
    """From raw blocks to the table, no seed loses more than 3 % of TPOT to the best K, over measured batch sizes."""
    engine = _engine()
    for profile in profiles:
        losses = []
        for size in (1, 4, 16):
            truth = [engine.true_tpot_s(Cell(Arm.DSD, size, k)) for k in (0, 1, 2)]
            losses.append(truth[profile.decision.table.k_at(size)] / min(truth) - 1)
        assert np.mean(losses) < 0.03


def test_a_sweep_knows_where_its_graphs_end(shelf: Shelf) -> None:
    """The largest size captured for the table's engine is the limit; an engine without graphs has none."""
    environment = replace(shelf.manifest.environment, graphs_dsd=GraphUse("FULL", (1, 8, 64)))
    captured, eager = (
        Fit(replace(shelf.manifest, environment=e), shelf.samples())
        for e in (environment, replace(environment, graphs_dsd=GraphUse("NONE", ())))
    )
    assert (captured.capture_limit, eager.capture_limit) == (64, None)


@pytest.mark.parametrize("left", [{0, 1}, {0, 2}], ids=str)
def test_an_unfinished_sweep_cannot_tell(shelf: Shelf, left: set[int]) -> None:
    """A grid whose Ks are mostly missing gives no firm verdict, whatever the Ks that are there look like."""
    part = [s for s in shelf.samples() if s.cell.arm is Arm.NO_SPEC or s.cell.k in left]
    assert _profile(Shelf(shelf.manifest, part)).decision.verdict is Verdict.UNCLEAR


def test_fit_repeats_itself(shelf: Shelf) -> None:
    """Fitting the same run twice gives the same profile, draws and all."""
    assert _profile(shelf) == _profile(shelf)


def test_profile_survives_its_file(shelf: Shelf) -> None:
    """What a fit says is plain data: JSON gives the same profile back."""
    profile = _profile(shelf)
    assert codec.decode(Profile, json.loads(json.dumps(codec.encode(profile), allow_nan=False)), "profile") == profile


def test_a_resumed_run_says_the_same(shelf: Shelf) -> None:
    """Starts numbered anew by a resume leave verdict, table and step times where they were."""
    half = len(shelf.kept) // 2
    renumbered = [replace(s, start=s.start + 6) if i > half else s for i, s in enumerate(shelf.kept)]
    whole, resumed = _profile(shelf), _profile(Shelf(shelf.manifest, renumbered))
    assert resumed.decision.verdict is whole.decision.verdict
    assert resumed.decision.table.k_at(1) == whole.decision.table.k_at(1)
    for one, other in zip(whole.cells, resumed.cells, strict=True):
        assert other.step_s.value == pytest.approx(one.step_s.value, rel=0.03)


@given(st.data())
@settings(max_examples=25)
def test_any_part_of_a_run_can_be_fitted(shelf: Shelf, data: st.DataObject) -> None:
    """Whatever a crash or failures left of a run, there is a profile that survives its file, or one sentence."""
    cells = sorted({s.cell for s in shelf.kept})
    dropped = data.draw(st.sets(st.sampled_from(cells), max_size=3))
    slots = data.draw(st.sets(st.integers(0, 5), max_size=3))
    end = data.draw(st.integers(len(shelf.kept) // 3, len(shelf.kept)))
    left = [s for s in shelf.kept[:end] if s.cell not in dropped and s.slot not in slots]
    try:
        profile = _profile(Shelf(shelf.manifest, left))
    except UsageError:
        return
    assert codec.decode(Profile, json.loads(json.dumps(codec.encode(profile), allow_nan=False)), "profile") == profile


@pytest.mark.parametrize("arm", [Arm.NO_SPEC, Arm.DSD])
def test_a_run_without_an_arm_is_refused(shelf: Shelf, arm: Arm) -> None:
    """Without blocks of both arms nothing can be compared; the missing arm is named, and what to do."""
    with pytest.raises(UsageError, match=f"no blocks of arm {arm} yet. Resume it"):
        Fit(shelf.manifest, [s for s in shelf.kept if s.cell.arm is not arm])


def test_an_empty_run_is_refused(shelf: Shelf) -> None:
    """A run that was stopped before its first block lacks both arms."""
    with pytest.raises(UsageError, match="no blocks of arm dsd and no_spec yet"):
        Fit(shelf.manifest, [])


def _failing(*cells: Cell) -> Profile:
    return _profile(_swept(_engine(failing_cells=cells)))


def test_a_failed_cell_has_no_estimate() -> None:
    """A cell that could not be measured is left out of the grid, of the table and of the fixed Ks."""
    doomed = Cell(Arm.DSD, 16, 2)
    profile = _failing(doomed)
    assert doomed not in {e.cell for e in profile.cells}
    assert 2 not in profile.decision.table.dense()[4:]
    assert profile.decision.fixed_k == 1


def test_one_start_leaves_wide_intervals() -> None:
    """With one start an arm the gain is known but roughly, and luck of starts is what limits the verdict."""
    profile = _profile(_swept(_engine(), starts=1))
    assert profile.decision.fixed_gain.high - profile.decision.fixed_gain.low > 0.25
    assert profile.variance.limit.source is Source.STARTS


def test_a_stranger_drafter_is_no_gain() -> None:
    """Drafts that are never accepted are not worth deploying."""
    stranger = SimulatedEngine(LAW, (0.0, 0.0), noise=NOISE, max_num_seqs=16, alive_together=8)
    assert _profile(_swept(stranger)).decision.verdict in {Verdict.OFF, Verdict.UNCLEAR}


def test_a_k_that_never_ran_is_not_judged() -> None:
    """A K that failed at every batch size gets neither a crossover nor a place in the table."""
    profile = _failing(*(Cell(Arm.DSD, b, 2) for b in (1, 4, 16)))
    assert [c.k for c in profile.crossovers] == [1]
    assert 2 not in profile.decision.table.ks
    assert [a.k for a in profile.acceptance_lengths] == [0, 1]


def test_a_fixed_k_is_compared_with_its_own_neighbours() -> None:
    """The arm `static` is judged against the engines that ran beside it, though the machine has slowed down since."""
    engine = _engine(law=STATIC_LAW, noise=replace(NOISE, start_sd=0.005))
    shelf = _swept(engine, fixed_k=1)
    slowed = [replace(s, step_s=tuple(1.3 * t for t in s.step_s)) if s.slot >= 6 else s for s in _blocks(shelf)]
    profile = _profile(Shelf(shelf.manifest, slowed))
    estimates = {e.cell: e for e in profile.cells}
    for size in (1, 4, 16):
        fixed, off = Cell(Arm.STATIC, size, 1), Cell(Arm.NO_SPEC, size, 0)
        truth = 1 - engine.true_tpot_s(fixed) / engine.true_tpot_s(off)
        assert estimates[fixed].gain.value == pytest.approx(truth, abs=0.05)
    assert profile.variance.between_starts < 0.05


def _blocks(shelf: Shelf) -> list[Block]:
    return [s for s in shelf.kept if isinstance(s, Block)]


def test_text_of_all_speculative_engines_counts() -> None:
    """Acceptance pools the blocks of the arm `static` with those of the table's engine."""
    engine = _engine(law=STATIC_LAW)
    shelf = _swept(engine, fixed_k=2)
    alone = Fit(shelf.manifest, [s for s in shelf.kept if s.slot < 6])
    pooled = Fit(shelf.manifest, shelf.samples())
    assert _steps(pooled) > _steps(alone)
    assert (pooled.rates.point != alone.rates.point).all()


def _steps(fit: Fit) -> int:
    return sum(p.steps for b in fit.blocks if b.cell.k for p in b.prompts)
