"""`dsd-tune tune` on the testbed with real engines and servers, as small as it gets."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port

from dsd_tune.records.validation import ServedArm
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

LIMIT_S = 900
SMALL = ("--batch-sizes", "1,4", "--max-k", "1", "--starts", "1", "--rounds", "1", "--target-regret", "90%")
LOADS = ("--concurrency", "1,4", "--duration", "1", "--output-len", "32")


def _tune(run: Path, *words: str) -> subprocess.CompletedProcess[str]:
    port = str(free_port())
    command = [sys.executable, "-m", "dsd_tune", "tune", "--testbed", "-o", str(run), "--port", port]
    return subprocess.run(
        [*command, *SMALL, *LOADS, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_one_command_measures_decides_and_proves(tmp_path: Path) -> None:
    """All three stages leave their record; one start proves nothing, so the code is 5; once more does nothing."""
    run = tmp_path / "run"
    said = _tune(run)
    assert said.returncode == 5, said.stderr
    profile = formats.read(formats.PROFILE, run / "profile.json")
    record = profile.validation
    assert record is not None
    assert {(p.arm, p.concurrency) for p in record.predictions} >= {
        (arm, c) for arm in (ServedArm.NO_SPEC, ServedArm.FIXED) for c in (1, 4)
    }
    assert all(p.error is not None for p in record.predictions)
    loads = formats.read_lines(formats.LOADS, run / "validation" / "loads.jsonl")
    mean_k = {(load.arm, load.concurrency): load.mean_k for load in loads}
    assert mean_k[ServedArm.NO_SPEC, 4] == 0
    assert mean_k[ServedArm.FIXED, 4] == pytest.approx(1, abs=0.1)
    assert shlex.split(said.stdout.splitlines()[-1])[:2] == ["vllm", "serve"]

    samples = RunDirectory.open(run).samples()
    again = _tune(run, "--json")
    assert again.returncode == 5, again.stderr
    assert json.loads(again.stdout)["validation"]["loads"] == len(loads)
    assert RunDirectory.open(run).samples() == samples
