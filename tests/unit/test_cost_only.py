"""Cost without acceptance: what is told of it, what is not, and what is stated instead of measured."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from builders import a_decided_profile, a_manifest, a_request, an_environment
from rich.console import Console
from sweeping import swept

from dsd_tune.emit.decision import doubts, engine_flags
from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.engines.vllm_cost_only import require_cost_free_of_text, require_weights
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.fit import Fit
from dsd_tune.quality.judge import judge
from dsd_tune.records.measurement import Arm, Block, Cell
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.warning import Code
from dsd_tune.report.content import document
from dsd_tune.report.grid import render
from dsd_tune.solve import decide

LAW = CostLaw(critical_tokens=12, slope_s=0.0012)
ENGINE = SimulatedEngine(
    LAW, (0.7, 0.6), noise=Noise(start_sd=0.01, drift_per_hour=0.0, step_sd=0.02), max_num_seqs=16, alive_together=8
)


@pytest.fixture(autouse=True, scope="module")
def _few_refits() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsd_tune.model.cost._REFITS", 5)
        yield


@pytest.fixture(scope="module")
def blocks() -> list[Block]:
    """Blocks with times and no counts, as an engine that drafts garbage gives them."""
    shelf = swept(ENGINE, starts=3, rounds=2, steps=8)
    return [replace(block, prompts=()) for block in shelf.samples() if isinstance(block, Block)]


def _profile(blocks: list[Block], **environment: Any) -> Profile:
    measured_on = replace(ENGINE.describe(), **environment)
    manifest = a_manifest(request=a_request(starts=3), environment=measured_on)
    fit = Fit(manifest, blocks)
    return fit.profile(decide(fit.surface, 16), 1.0, "0.1.0", judge(manifest, blocks, fit.findings))


@pytest.fixture(scope="module")
def costs(blocks: list[Block]) -> Profile:
    """Of weights that were invented."""
    return _profile(blocks, load_format="dummy")


@pytest.fixture(scope="module")
def stated(blocks: list[Block]) -> Profile:
    """Of drafts that were accepted as somebody said."""
    return _profile(blocks, synthetic_acceptance=(0.7, 0.4))


def test_costs_alone_decide_nothing(costs: Profile) -> None:
    """Without acceptance there is neither a table nor a gain, and the exit code says: cannot tell."""
    decision = costs.decision
    assert (decision.verdict, decision.table, decision.fixed_gain) == (Verdict.UNCLEAR, None, None)
    assert decision.verdict.exit_code == 5
    assert "only cost was measured" in decision.reason


def test_acceptance_is_never_fitted_from_garbage(costs: Profile, stated: Profile) -> None:
    """No rate by position is told, and no acceptance length but one that was stated."""
    assert costs.acceptance == stated.acceptance == ()
    assert costs.acceptance_lengths == ()
    assert [(a.k, a.tokens.value, a.tokens.low) for a in stated.acceptance_lengths] == [
        (0, 1, 1),
        (1, 1.7, 1.7),
        (2, 2.1, 2.1),
    ]


def test_the_acceptance_that_would_pay_holds_the_truth(costs: Profile) -> None:
    """Each cell tells how many tokens a step must give: its step time over that without speculation."""
    speculative = [e for e in costs.cells if e.cell.arm is Arm.DSD]
    held = []
    for e in speculative:
        truth = ENGINE.true_step_s(e.cell) / ENGINE.true_step_s(Cell(Arm.NO_SPEC, e.cell.batch_size, 0))
        held.append(e.break_even.low <= truth <= e.break_even.high)
    assert len(held) == 9
    assert sum(held) >= 8


def test_stated_acceptance_decides_as_measured_would(stated: Profile) -> None:
    """Cost joined with what was stated gives TPOT, gain and verdict like any other."""
    assert stated.decision.verdict is Verdict.TABLE
    assert [stated.decision.table.k_at(size) for size in (1, 16)] == [2, 1]


@pytest.mark.parametrize("environment", [{"load_format": "dummy"}, {"synthetic_acceptance": (0.7, 0.4)}], ids=str)
def test_every_reader_is_told(blocks: list[Block], environment: dict[str, Any]) -> None:
    """The profile is marked, warns once about acceptance, and what is emitted says so."""
    profile = _profile(blocks, **environment)
    assert profile.cost_only
    warned = [warning for warning in profile.warnings if warning.code is Code.COST_ONLY]
    assert len(warned) == 1
    assert not {Code.LITTLE_TEXT, Code.PROMPTS_ALIKE} & {warning.code for warning in profile.warnings}
    (remark,) = doubts(profile)
    assert remark.startswith(warned[0].said)


def test_a_measured_profile_is_not_marked() -> None:
    """Nothing is said of cost alone where acceptance was measured."""
    profile = a_decided_profile()
    assert not profile.cost_only
    assert doubts(profile) == ()


def _printed(profile: Profile) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render(profile))
    return capture.get()


def test_costs_are_not_shown_as_tpot(costs: Profile, stated: Profile) -> None:
    """Without acceptance the grid holds step times and what would pay; with a stated one, TPOT and the statement."""
    assert "Step time in ms" in _printed(costs)
    assert "Fixed K" not in _printed(costs)
    assert "Acceptance" not in _printed(costs)
    assert "Acceptance stated K=1 1.70 [1.70, 1.70]" in " ".join(_printed(stated).split())
    assert max(map(len, _printed(costs).splitlines())) <= 80


def test_a_report_shows_costs_as_costs(costs: Profile) -> None:
    """The page's grid holds step times with what would pay, under a heading that says so."""
    sections = {section.title: section for section in document(costs, (), ()).sections}
    (grid,) = sections["Step time in ms, and acceptance length that would pay"].parts
    assert all("±" in cell and "+" not in cell for row in grid.rows for cell in row[2:])


@pytest.mark.parametrize(
    ("load_format", "flags"),
    [("auto", ()), ("dummy", ()), ("runai_streamer", ("--load-format", "runai_streamer"))],
)
def test_nobody_is_told_to_serve_dummy_weights(load_format: str, flags: tuple[str, ...]) -> None:
    """A way to load real weights is part of the server that was measured; invented ones are not."""
    profile = replace(a_decided_profile(), request=a_request(engine_flags=(), load_format=load_format))
    assert engine_flags(profile) == flags


def _config(experts: int = 0, method: str = "eagle", load_format: str = "auto", drafter: str | None = None) -> Any:
    loading = SimpleNamespace(load_format=drafter) if drafter else None
    return SimpleNamespace(
        model_config=SimpleNamespace(get_num_experts=lambda: experts),
        load_config=SimpleNamespace(load_format=load_format),
        speculative_config=SimpleNamespace(method=method, draft_load_config=loading),
    )


@pytest.mark.parametrize(
    ("config", "why"),
    [(_config(experts=64), "mixture of 64 experts"), (_config(method="ngram"), "drafts from the text")],
)
def test_cost_that_depends_on_the_text_is_refused(config: Any, why: str) -> None:
    """Which experts a token needs, and what n-gram matching finds, cannot be measured on garbage."""
    with pytest.raises(EnvironmentUnfit, match=why):
        require_cost_free_of_text(config)
    require_cost_free_of_text(_config())


@pytest.mark.parametrize("config", [_config(load_format="dummy"), _config(drafter="dummy")])
def test_acceptance_without_weights_is_refused(config: Any) -> None:
    """Dummy weights that came in by another way would be taken for a drafter that is never right."""
    with pytest.raises(EnvironmentUnfit, match="says nothing about acceptance"):
        require_weights(config)
    require_weights(_config(drafter="auto"))


def test_costs_and_measurements_do_not_mix() -> None:
    """A run on dummy weights is another environment than one on real ones, and so is another statement."""
    real = an_environment()
    assert [d.key for d in real.differences(replace(real, load_format="dummy"))] == ["load_format"]
    assert [d.key for d in real.differences(replace(real, synthetic_acceptance=(0.5,)))] == ["synthetic_acceptance"]


@pytest.mark.parametrize("rates", [(0.7,), (0.4, 0.7), (1.2, 0.5), (0.5, -0.1)], ids=str)
def test_an_impossible_statement_is_refused(rates: tuple[float, ...]) -> None:
    """Shares of steps lie between 0 and 1, never rise with the position, and each K up to the largest needs one."""
    with pytest.raises(ValueError, match="stated acceptance needs 2 shares"):
        a_request(synthetic_acceptance=rates)
