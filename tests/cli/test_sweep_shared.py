"""Several workers on one study, as users start them: each with a directory of its own."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.plan import Turn
from dsd_tune.report.live import Watcher
from dsd_tune.storage.run_directory import RunDirectory

SMALL = ("--batch-sizes", "1,4", "--max-k", "2", "--starts", "2")
EAGLE = '{"method": "eagle", "model": "drafter"}'

SweepAs = Callable[..., Any]


@pytest.fixture
def sweep_as(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepAs:
    """Runs `dsd-tune sweep` in the run directory of a worker, on the study that all share, with a simulated engine."""

    def engine(**_: Any) -> SimulatedEngine:
        return SimulatedEngine(acceptance=(0.7, 0.6), max_num_seqs=4, alive_together=2)

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", engine)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')

    def sweep_as(worker: str, *words: object) -> Any:
        run, storage = tmp_path / worker / "run", tmp_path / "journal.log"
        needed = ("-o", run, "--model", "target", "--speculative-config", EAGLE, "--prompts", prompts)
        return cli("sweep", *needed, "--storage", storage, *SMALL, *words)

    return sweep_as


def _interrupt_after(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    measured = Watcher.measured
    left = iter(range(blocks))

    def impatient(self: Watcher, sample: Any) -> None:
        measured(self, sample)
        if next(left, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watcher, "measured", impatient)


def test_a_worker_that_joins_finishes_what_another_began(
    sweep_as: SweepAs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one measured the other does not measure again; in the end both directories hold the same, each turn once."""
    with monkeypatch.context() as patch:
        _interrupt_after(patch, 7)
        assert sweep_as("a").code != 0
    begun = RunDirectory.open(tmp_path / "a" / "run").samples()
    assert sweep_as("b", "--join").code == 0
    result = RunDirectory.open(tmp_path / "b" / "run").samples()
    assert set(begun) < set(result)
    assert max(Counter(map(Turn.of, result)).values()) == 1
    assert sweep_as("a").code == 0
    assert RunDirectory.open(tmp_path / "a" / "run").samples() == result


def test_whoever_is_late_is_told_to_join(sweep_as: SweepAs) -> None:
    """A second worker does not begin a run of its own by mistake."""
    assert sweep_as("a").code == 0
    assert "--join" in sweep_as("b").refused(2)


def test_unlike_workers_are_refused(sweep_as: SweepAs) -> None:
    """Another request ends with exit code 2 and another environment with 6, both with the key named."""
    assert sweep_as("a").code == 0
    assert "seed: 0 against 1" in sweep_as("b", "--join", "--seed", 1).refused(2)


def test_unlike_machines_are_refused(sweep_as: SweepAs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with another driver takes no part; the exit code is 6."""
    assert sweep_as("a").code == 0

    def engine(**_: Any) -> SimulatedEngine:
        return SimulatedEngine(acceptance=(0.7, 0.5), max_num_seqs=4)

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", engine)
    assert "drafter_digest" in sweep_as("b", "--join").refused(6)
