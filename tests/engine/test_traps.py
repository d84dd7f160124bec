"""Servers that are not what a profile says: each is caught before anybody relies on it. Two tiny servers for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from engine.tiny_model import PROMPTS, make_drafter, make_target
from ports import free_port
from sweeping import fitted, swept

from dsd_tune.cli.trial_request import stated_request
from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.engines.vllm_server import VllmServer, vllm_server
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TABLE = Table.from_dense([3, 3, 1, 1, 1, 1, 1, 1])
SWAPPED = Table.from_dense([1, 1, 3, 3, 3, 3, 3, 3])
FLAGS = ("--max-model-len", "512", "--enforce-eager", "--kv-cache-memory-bytes", str(1 << 26))
LIMIT_S = 300

DEAF = '''
def make_deaf():
    """A vLLM that reads a table and forgets it."""
    from vllm.v1.core.sched.scheduler import Scheduler

    start = Scheduler.__init__

    def forget(self, *args, **kwargs):
        start(self, *args, **kwargs)
        self.dynamic_sd_lookup = None

    Scheduler.__init__ = forget
'''


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that advises `TABLE` for the tiny model, and was swept with a drafter that is accepted."""
    folder = tmp_path_factory.mktemp("traps")
    target, drafter = make_target(folder / "target"), make_drafter(folder / "eagle")
    engine = SimulatedEngine(CostLaw(critical_tokens=8), (0.8, 0.7, 0.6), max_num_seqs=8, alive_together=8)
    found = fitted(swept(engine, batch_sizes=(1, 2, 4, 8), ks=(0, 1, 2, 3), max_num_seqs=8, starts=2))
    config = {"method": "eagle", "model": str(drafter)}
    assert found.request
    assert found.environment
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": p.text}) + "\n" for p in PROMPTS))
    path = folder / "profile.json"
    _write(
        path,
        replace(
            found,
            request=replace(
                found.request, model=str(target), speculative_config=json.dumps(config), engine_flags=FLAGS
            ),
            environment=replace(
                found.environment,
                model=str(target),
                model_digest=model_digest(str(target)),
                drafter_digest=drafter_digest(config),
                method="eagle",
            ),
        ),
        TABLE,
    )
    return path


def _write(path: Path, profile: Profile, table: Table) -> None:
    decision = replace(profile.decision, verdict=Verdict.TABLE, table=table, fixed_k=2)
    formats.write(formats.PROFILE, path, replace(profile, decision=decision))


@pytest.fixture(scope="module")
def server(profile: Path, quiet_cores: None) -> Iterator[VllmServer]:
    """The advice as `emit-config` prints it, on the installed vLLM."""
    yield from _serve(profile)


@pytest.fixture(scope="module")
def deaf_server(profile: Path, quiet_cores: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """The same words to a vLLM with a plugin that forgets the table after parsing it."""
    folder = tmp_path_factory.mktemp("deaf")
    (folder / "deaf.py").write_text(DEAF)
    facts = folder / "deaf-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: deaf\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[vllm.general_plugins]\ndeaf = deaf:make_deaf\n")
    yield from _serve(profile, {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])})


def _serve(profile: Path, environment: Mapping[str, str] | None = None) -> Iterator[VllmServer]:
    fitted_profile = formats.read(formats.PROFILE, profile)
    request = stated_request(
        fitted_profile,
        profile,
        PROMPTS,
        concurrency="4",
        starts=1,
        duration_s=1,
        output_tokens=32,
    )
    model, *arguments = request.commands[-1].arguments
    port = free_port()
    with vllm_server(model, arguments, port, profile.with_name(f"serve-{port}.log"), runtime=environment) as running:
        yield running


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dsd_tune", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def _validate(profile: Path, server: VllmServer, label: str, out: Path) -> subprocess.CompletedProcess[str]:
    load = ("--concurrency", "4", "--duration", "1", "--output-len", "32")
    prompts = profile.with_name("prompts.jsonl")
    return _run("validate", profile, "--url", server.url, "--label", label, "--prompts", prompts, "-o", out, *load)


def test_a_server_that_ignores_its_table_is_refused(profile: Path, deaf_server: VllmServer, tmp_path: Path) -> None:
    """`validate` and `probe` both see K=3 where the table says 1, and end with 6; nothing goes into the profile."""
    said = _validate(profile, deaf_server, "table", tmp_path / "v")
    assert said.returncode == 6, said.stderr
    assert "drafted 3.0 tokens for a request in a step" in said.stderr
    assert "it ignores the table, or runs another" in said.stderr
    assert formats.read(formats.PROFILE, profile).validation is None
    probed = _run("probe", profile, "--url", deaf_server.url)
    assert (probed.returncode, "a fixed K" in probed.stdout) == (6, True)


def test_a_drafter_with_random_weights_is_named(profile: Path, server: VllmServer, tmp_path: Path) -> None:
    """The table is live and its drafts are worth nothing: the record says which, and what may be the matter."""
    said = _validate(profile, server, "table", tmp_path / "v")
    assert said.returncode == 5, said.stderr
    record = formats.read(formats.PROFILE, profile).validation
    assert record is not None
    (remark,) = [remark for remark in record.remarks if "yields" in remark]
    assert "another drafter, or one whose weights were not loaded" in remark
    assert _run("probe", profile, "--url", server.url).returncode == 0


def test_a_table_that_was_swapped_is_refused(profile: Path, server: VllmServer, tmp_path: Path) -> None:
    """A profile with another table than the server's: `validate` and `probe` end with 6."""
    other = tmp_path / "profile.json"
    _write(other, formats.read(formats.PROFILE, profile), SWAPPED)
    (tmp_path / "prompts.jsonl").write_text(profile.with_name("prompts.jsonl").read_text())
    said = _validate(other, server, "table", tmp_path / "v")
    assert said.returncode == 6, said.stderr
    assert "it ignores the table, or runs another" in said.stderr
    probed = _run("probe", other, "--url", server.url)
    assert (probed.returncode, "another table" in probed.stdout) == (6, True)


def test_a_server_under_a_wrong_label_is_refused(profile: Path, server: VllmServer, tmp_path: Path) -> None:
    """Who takes a speculating server for the one without would compare the table with itself."""
    said = _validate(profile, server, "no_spec", tmp_path / "v")
    assert said.returncode == 6, said.stderr
    assert "it speculates" in said.stderr


def test_adaptive_verification_is_refused_in_the_words_of_vllm(profile: Path, tmp_path: Path) -> None:
    """On a machine where vLLM cannot run that arm it ends with exit code 3, before any server is started."""
    words = ("--adaptive-verification", "--prompts", profile.with_name("prompts.jsonl"), "-o", tmp_path / "v")
    said = _run("validate", profile, *words, "--concurrency", "4")
    assert said.returncode == 3, said.stderr
    assert "Adaptive verification cannot run here: " in said.stderr
    assert "does not support: adaptive draft verification" in said.stderr
    assert not (tmp_path / "v").exists()
