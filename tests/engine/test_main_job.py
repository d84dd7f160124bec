"""The commands of the README on a real engine: small grids, real drafter, real kills."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from dsd_tune.plan import Plan, Turn
from dsd_tune.records.measurement import Arm, Block, Phase
from dsd_tune.storage.run_directory import RunDirectory

pytestmark = pytest.mark.vllm

GRID = ("--batch-sizes", "1,4", "--max-k", "2", "--starts", "1", "--rounds", "2", "--target-regret", "90%")
FINISH_S = 420


def _sweep(run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dsd_tune", "sweep", "--testbed", *GRID, "-o", str(run)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _samples(run: Path) -> list[object]:
    return list(RunDirectory.open(run).samples()) if (run / "samples.jsonl").exists() else []


def _kill_after(run: Path, blocks: int) -> None:
    """Let a sweep write `blocks` more blocks, then kill it as a power cut would."""
    target = len(_samples(run)) + blocks
    process = _sweep(run)
    deadline = time.monotonic() + FINISH_S
    while len(_samples(run)) < target and process.poll() is None:
        assert time.monotonic() < deadline, "the sweep stands still"
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _dsd_tune(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dsd_tune", *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose sweep was killed at three random moments and then left to finish."""
    run = tmp_path_factory.mktemp("sweep") / "run"
    before: list[object] = []
    for blocks in (random.randint(1, 4) for _ in range(3)):
        _kill_after(run, blocks)
        after = _samples(run)
        assert after[: len(before)] == before, "a finished block was lost or changed"
        before = after
    process = _sweep(run)
    out, err = process.communicate(timeout=FINISH_S)
    assert process.returncode == 0, err
    assert out.strip().endswith(f"dsd-tune fit {run}")
    assert _samples(run)[: len(before)] == before
    return run


def test_a_killed_sweep_ends_with_every_cell(killed_run: Path) -> None:
    """After three SIGKILLs and resumes every cell asked for was measured, and no block is on disk twice."""
    directory = RunDirectory.open(killed_run)
    plan = Plan(directory.manifest.request, Phase.MAIN, directory.samples())
    assert plan.is_covered
    assert plan.sitting(2) == ()
    assert set(Counter(Turn.of(s) for s in directory.samples()).values()) == {1}


def test_live_k_is_what_was_drafted(killed_run: Path) -> None:
    """Each block of the table's engine drafted K tokens a step for every prompt, K=0 included.

    In the one step that holds a text's end, only the positions before it count.
    """
    blocks = [s for s in RunDirectory.open(killed_run).samples() if isinstance(s, Block) and s.cell.arm is Arm.DSD]
    assert {b.cell.k for b in blocks} == {0, 1, 2}
    for block in blocks:
        assert all(len(p.drafted) == block.cell.k for p in block.prompts)
        assert all(p.steps - 1 <= drafted <= p.steps for p in block.prompts for drafted in p.drafted)


def test_fit_and_emit_answer_alike(killed_run: Path) -> None:
    """`fit` ends with the verdict's exit code, `emit-config` with the same, and its line is a `vllm serve` command."""
    fitted = _dsd_tune("fit", str(killed_run))
    assert fitted.returncode in (0, 4, 5), fitted.stderr
    assert "Verdict: " in fitted.stdout
    emitted = _dsd_tune("emit-config", str(killed_run / "profile.json"))
    assert emitted.returncode == fitted.returncode
    assert emitted.stdout.startswith("vllm serve ")
    assert ("--speculative-config" in emitted.stdout) == (fitted.returncode == 0)


def test_a_run_of_another_model_is_refused(killed_run: Path) -> None:
    """Sweeping with another request into an existing run names the difference and measures nothing."""
    before = _samples(killed_run)
    other = _dsd_tune("sweep", "--testbed", "--batch-sizes", "1,8", "--max-k", "2", "-o", str(killed_run))
    assert other.returncode == 2
    assert "batch_sizes" in other.stderr
    assert "Traceback" not in other.stderr
    assert _samples(killed_run) == before
