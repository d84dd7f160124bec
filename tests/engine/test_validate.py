"""`validate` on real servers of a tiny model: what is measured, and that nothing is left running."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import a_decided_profile
from engine.tiny_model import make_drafter, make_target
from ports import free_port

from dsd_tune.records.profile import Verdict
from dsd_tune.records.table import Table
from dsd_tune.records.validation import ServedArm
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("quiet_cores")]

FLAGS = ("--max-model-len", "512", "--enforce-eager", "--kv-cache-memory-bytes", str(1 << 26))
LIMIT_S = 400


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of the tiny model that advises a fixed K, with prompts beside it."""
    target, drafter = make_target(tmp_path / "target"), make_drafter(tmp_path / "eagle")
    config = {"method": "eagle", "model": str(drafter)}
    fitted = a_decided_profile(
        Verdict.FIXED,
        table=Table.from_dense([2] * 4),
        flags=FLAGS,
        config=config,
        model=str(target),
        model_digest=model_digest(str(target)),
        drafter_digest=drafter_digest(config),
    )
    formats.write(formats.PROFILE, tmp_path / "profile.json", fitted)
    prompts = "".join(json.dumps({"prompt": f"Once there were {n} ships."}) + "\n" for n in range(8))
    (tmp_path / "prompts.jsonl").write_text(prompts)
    return tmp_path / "profile.json"


def _command(profile: Path, port: int) -> list[str]:
    words = ["validate", str(profile), "--prompts", str(profile.with_name("prompts.jsonl")), "--concurrency", "2"]
    return [sys.executable, "-m", "dsd_tune", *words, "--starts", "1", "--duration", "1", "--port", str(port)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_real_servers_are_compared_and_the_record_goes_into_the_profile(profile: Path) -> None:
    """One start an arm gives a load each, drafts that the server counted, and the honest answer: cannot tell."""
    port = free_port()
    done = subprocess.run(_command(profile, port), capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 5, done.stderr
    record = formats.read(formats.PROFILE, profile).validation
    assert record is not None
    assert record.loads == 2
    assert {p.arm for p in record.predictions} == {ServedArm.NO_SPEC, ServedArm.FIXED}
    loads = formats.read_lines(formats.LOADS, profile.with_name("validation") / "loads.jsonl")
    assert all(load.failed == 0 and load.requests >= 4 for load in loads)
    drafted = {load.arm: load.acceptance_length for load in loads}
    assert drafted[ServedArm.NO_SPEC] is None
    assert drafted[ServedArm.FIXED] is not None
    assert not _listens(port)


def test_a_killed_validation_leaves_no_server(profile: Path) -> None:
    """SIGKILL while the server is up: soon nothing listens any more."""
    port = free_port()
    child = subprocess.Popen(_command(profile, port), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    while not _listens(port):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + 30
    while _listens(port):
        assert time.monotonic() < deadline
        time.sleep(0.1)
