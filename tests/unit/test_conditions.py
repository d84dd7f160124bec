"""A run under several conditions: each its own decision, one decision for all, and what that loses where."""

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from sweeping import Shelf, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.errors import UsageError
from dsd_tune.fit import Fit
from dsd_tune.model.aim import Aim
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import ConditionResult, Profile, Verdict
from dsd_tune.report.conditions import by_condition
from dsd_tune.report.content import document
from dsd_tune.solve import decide, regret

SHORT, LONG = Condition(512, 0.0), Condition(8192, 0.0)
SIZES = (1, 4, 8, 16, 32)
CACHE_COUNTS = CostLaw(critical_tokens=12, slope_s=0.0012, kv_s=2e-6)
"""Verification rises early, but at a long context reading the cache is most of a step, whatever K is."""


def _engine(law: CostLaw = CACHE_COUNTS, seed: int = 0) -> SimulatedEngine:
    return SimulatedEngine(
        law,
        (0.7, 0.6),
        noise=Noise(start_sd=0.02, drift_per_hour=0.0, step_sd=0.02),
        seed=seed,
        max_num_seqs=32,
        max_context=8192,
        contexts=(512, 8192),
        alive_together=8,
    )


def _run(engine: SimulatedEngine, **changed: Any) -> Shelf:
    asked = {"contexts": (512, 8192), "batch_sizes": SIZES, "max_num_seqs": 32, "starts": 3, "rounds": 2, "steps": 8}
    return swept(engine, **asked | changed)


def _results(fit: Fit) -> dict[Condition, ConditionResult]:
    joint = decide(fit.surface, 32)
    own = {part: decide(part.surface, 32) for part in fit.parts}
    return {p.condition: p.result(d, regret(p.surface, 32, Aim(), joint, d)) for p, d in own.items()}


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    """One run under both contexts."""
    return _run(_engine())


@pytest.fixture(scope="module")
def fit(shelf: Shelf) -> Fit:
    """Of that run."""
    return Fit(shelf.manifest, shelf.samples())


def test_each_context_gets_the_table_that_is_best_there(fit: Fit) -> None:
    """Where reading the cache dominates a large K pays to the end, and where it does not a large batch wants less."""
    results = _results(fit)
    short, long = results[SHORT].decision, results[LONG].decision
    assert short.verdict is Verdict.TABLE
    assert [short.table.k_at(size) for size in (1, 4, 16, 32)] == [2, 2, 1, 1]
    assert (long.verdict, long.fixed_k) == (Verdict.FIXED, 2)


def test_what_one_decision_loses_is_told_for_each(fit: Fit) -> None:
    """The regret of the one decision is nothing where it is the condition's own, and holds the truth elsewhere."""
    results = _results(fit)
    joint, engine = decide(fit.surface, 32), _engine()
    assert (joint.verdict, joint.fixed_k) == (Verdict.FIXED, 2)
    assert results[LONG].regret.value == 0.0
    assert results[LONG].is_served
    found = results[SHORT].regret
    at_32 = 1 - engine.true_tpot_s(Cell(Arm.DSD, 32, 1), 512) / engine.true_tpot_s(Cell(Arm.DSD, 32, 2), 512)
    assert 0.01 < found.low < found.value < at_32
    assert not results[SHORT].is_served


def test_cells_of_each_condition_hold_the_truth(fit: Fit) -> None:
    """Step times at a context are those of that context, not of the mean."""
    engine = _engine()
    for condition, result in _results(fit).items():
        held = [e.step_s.low <= engine.true_step_s(e.cell, condition.context) <= e.step_s.high for e in result.cells]
        assert len(held) == len(SIZES) * 4
        assert sum(held) >= 0.8 * len(held)


def test_all_conditions_count_alike_in_the_decision_for_all(fit: Fit) -> None:
    """The gain of the one decision is the mean of what it gains under each, as log ratios."""
    joint = fit.surface.no_spec.point - fit.surface.fixed_tpot(2).point
    parts = [part.surface.no_spec.point - part.surface.fixed_tpot(2).point for part in fit.parts]
    assert joint == pytest.approx(sum(parts) / 2)


def test_the_luck_of_a_start_does_not_average_out_over_conditions(fit: Fit) -> None:
    """The same engines ran both, so the mean is no surer of the arms' difference than either condition alone."""

    def width(surface: Any) -> float:
        low, high = (surface.no_spec - surface.fixed_tpot(2)).limits()
        return float((high - low).mean())

    assert width(fit.surface) > 0.9 * min(width(part.surface) for part in fit.parts)


def test_where_conditions_agree_one_table_serves_all() -> None:
    """Contexts that cost nothing want the same table, and no regret is claimed."""
    shelf = _run(_engine(replace(CACHE_COUNTS, kv_s=0.0)))
    assert all(result.is_served for result in _results(Fit(shelf.manifest, shelf.samples())).values())


def test_a_condition_that_was_not_come_to_yet_is_left_out(shelf: Shelf) -> None:
    """An interrupted run says what is known of the conditions it has, and nothing of the others."""
    begun = [s for s in shelf.samples() if s.condition == SHORT or s.cell.arm is Arm.NO_SPEC]
    assert [part.condition for part in Fit(shelf.manifest, begun).parts] == [SHORT]


def test_arms_under_different_conditions_cannot_be_compared(shelf: Shelf) -> None:
    """No speculation at one context and the table's engine at another say nothing about each other."""
    apart = [s for s in shelf.samples() if (s.condition == SHORT) == (s.cell.arm is Arm.NO_SPEC)]
    with pytest.raises(UsageError, match="under one condition"):
        Fit(shelf.manifest, apart)


def _printed(profile: Profile) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(by_condition(profile))
    return capture.get()


def test_each_condition_is_one_compact_block(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` says first whether one decision serves all, then each condition's own decision, acceptance and loss."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 2)
    profile = fit.profile(decide(fit.surface, 32), 1.0, "0.1.0")
    said = _printed(replace(profile, conditions=tuple(_results(fit).values())))
    assert "does not serve every condition: under context 512, temperature 0" in " ".join(said.split())
    assert "deploy this table: [[1,6,2],[7,32,1]]" in said
    assert said.count("Condition ") == 2
    assert max(map(len, said.splitlines())) <= 80


def test_a_report_has_a_section_for_conditions(fit: Fit) -> None:
    """The page says of each condition what the terminal says; a run under one has no such section."""
    profile = fit.profile(decide(fit.surface, 32), 1.0, "0.1.0")
    several = replace(profile, conditions=tuple(_results(fit).values()))
    titles = [{section.title for section in document(p, (), ()).sections} for p in (profile, several)]
    assert titles[1] - titles[0] == {"Each condition by itself"}
