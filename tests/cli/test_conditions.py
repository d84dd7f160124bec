"""From `sweep --context` and `sweep --load-format dummy` to what `fit` and `emit-config` say of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

CALM = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01)
LAW = CostLaw(critical_tokens=8, slope_s=0.003, kv_s=4e-5)


class Garbled(SimulatedEngine):
    """A simulated engine on dummy weights: it counts nothing, and says so."""

    def describe(self) -> Environment:
        """As of dummy weights."""
        return replace(super().describe(), load_format="dummy")

    def start(self, *arm: Any, **fixed_k: Any) -> Any:
        """An engine whose blocks have no counts."""
        process = super().start(*arm, **fixed_k)
        measure = process.measure
        process.measure = lambda *cell, **how: replace(measure(*cell, **how), prompts=())
        return process


@pytest.fixture(autouse=True)
def _few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)


@pytest.fixture
def sweep(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `dsd-tune sweep` over one kind of simulated engine, into `run`."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')

    def run(kind: type[SimulatedEngine], *words: str) -> Any:
        def start(**asked: Any) -> SimulatedEngine:
            contexts = tuple(condition.context for condition in asked["conditions"])
            return kind(LAW, (0.8, 0.7), noise=CALM, max_num_seqs=8, contexts=contexts, alive_together=8)

        monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", start)
        needed = ("-o", tmp_path / "run", "--model", "target", "--prompts", prompts)
        drafter = ("--speculative-config", '{"method": "eagle", "model": "drafter"}')
        return cli("sweep", *needed, *drafter, "--batch-sizes", "1,8", "--max-k", "2", "--starts", "2", *words)

    return run


def test_each_context_is_measured_and_fitted_by_itself(cli: Any, sweep: Callable[..., Any], tmp_path: Path) -> None:
    """Every condition has its blocks, its own part of the profile, and a line whether one decision serves it."""
    assert sweep(SimulatedEngine, "--context", "128,1024").code == 0
    conditions = [Condition(128, 0.0), Condition(1024, 0.0)]
    assert {sample.condition for sample in RunDirectory.open(tmp_path / "run").samples()} == set(conditions)
    said = cli("fit", tmp_path / "run")
    profile = formats.read(formats.PROFILE, tmp_path / "run" / "profile.json")
    assert [part.condition for part in profile.conditions] == conditions
    assert all(part.regret is not None for part in profile.conditions)
    assert "One for all" in said.out
    assert "context 1024, temperature 0" in said.out


def test_one_condition_has_no_parts(cli: Any, sweep: Callable[..., Any], tmp_path: Path) -> None:
    """A run under one condition says nothing of several."""
    sweep(SimulatedEngine)
    said = cli("fit", tmp_path / "run")
    assert formats.read(formats.PROFILE, tmp_path / "run" / "profile.json").conditions == ()
    assert "One for all" not in said.out


def test_dummy_weights_give_costs_and_no_advice(cli: Any, sweep: Callable[..., Any], tmp_path: Path) -> None:
    """A sweep without weights can be fitted, is shown as what it is, and nothing is emitted as if it were known."""
    assert sweep(Garbled, "--load-format", "dummy").code == 0
    fitted = cli("fit", tmp_path / "run")
    assert fitted.code == 5
    assert "Step time in ms" in fitted.out
    emitted = cli("emit-config", tmp_path / "run" / "profile.json")
    assert emitted.code == 5
    assert "--load-format" not in emitted.out
    assert "--speculative-config" not in emitted.out
    assert "weights were invented: only cost was measured" in emitted.err
