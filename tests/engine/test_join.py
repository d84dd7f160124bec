"""Two workers with a real vLLM each share one run, and one of them is killed."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from engine.tiny_model import PROMPTS, make_drafter, make_target

from dsd_tune.plan import Plan, Turn
from dsd_tune.records.measurement import Block, Phase
from dsd_tune.storage.run_directory import RunDirectory

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

GRID = ("--batch-sizes", "1,2,4", "--max-k", "1", "--starts", "2", "--rounds", "2", "--target-regret", "90%")
FLAGS = ("--max-model-len", "512", "--enforce-eager")
PATIENCE_S = 300


class Workers:
    """Sweeps of one study, each in a process and a run directory of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_target(folder / "target")
        make_drafter(folder / "eagle")
        lines = [json.dumps({"prompt": prompt.text}) for prompt in PROMPTS]
        (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")

    def run(self, worker: str) -> Path:
        """Where a worker keeps what it measured."""
        return self._folder / worker / "run"

    def start(self, worker: str, *words: str) -> subprocess.Popen[str]:
        """Begin, resume or join."""
        drafter = json.dumps({"method": "eagle", "model": str(self._folder / "eagle")})
        model = ("--model", str(self._folder / "target"), "--speculative-config", drafter)
        shared = ("--prompts", str(self._folder / "prompts.jsonl"), "--storage", str(self._folder / "journal.log"))
        command = [sys.executable, "-m", "dsd_tune", "sweep", *model, *shared, *GRID, "--context", "256"]
        command += [*words, "-o", str(self.run(worker)), "--", *FLAGS]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def measured(self, worker: str) -> int:
        """Samples on a worker's own disk."""
        samples = self.run(worker) / "samples.jsonl"
        return max(0, len(samples.read_text().splitlines()) - 1) if samples.exists() else 0


def wait(process: subprocess.Popen[str], until: Callable[[], bool]) -> None:
    """Until something holds that a live process brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_two_engines_measure_one_run_and_one_is_killed(tmp_path: Path) -> None:
    """A worker killed with SIGKILL costs no turn: the one that joined measures what is left, and none twice."""
    workers = Workers(tmp_path)
    first = workers.start("first")
    wait(first, lambda: workers.measured("first") >= 3)
    second = workers.start("second", "--join")
    wait(second, lambda: workers.measured("second") >= 3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    _, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, err
    directory = RunDirectory.open(workers.run("second"))
    samples = directory.samples()
    plan = Plan(directory.manifest.request, Phase.MAIN, samples)
    assert plan.is_covered
    assert set(Counter(map(Turn.of, samples)).values()) == {1}
    assert all(isinstance(sample, Block) for sample in samples)
    kept = RunDirectory.open(workers.run("first")).samples()
    assert set(kept) <= set(samples)
    assert kept
