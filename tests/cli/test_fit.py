import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_manifest
from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.records.measurement import Arm, Block, Failure
from dsd_tune.records.profile import Verdict
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

STEEP = CostLaw(critical_tokens=8, slope_s=0.003)
FLAT = CostLaw(critical_tokens=10_000)
CALM = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01)
WILD = Noise(start_sd=0.2, drift_per_hour=0, step_sd=0.02)

Samples = list[Block | Failure]


def _samples(law: CostLaw, acceptance: tuple[float, ...], noise: Noise) -> Samples:
    engine = SimulatedEngine(law, acceptance, noise=noise, max_num_seqs=16, alive_together=8)
    return swept(engine, starts=3).samples()


@pytest.fixture(scope="module")
def steep() -> Samples:
    """A sweep that deserves a table."""
    return _samples(STEEP, (0.8, 0.7), CALM)


@pytest.fixture(autouse=True)
def _few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)


def _run(path: Path, samples: Samples, **changed: Any) -> Path:
    manifest = a_manifest()
    run = RunDirectory.create(path, replace(manifest, request=replace(manifest.request, starts=3, **changed)))
    formats.write_samples(path / "samples.jsonl", samples)
    return run.path


def test_fit_prints_the_view_and_saves_the_profile(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """The tables go to stdout and where the profile lies to stderr; a table worth deploying is exit code 0."""
    run = _run(tmp_path / "run", steep)
    said = cli("fit", run)
    profile = formats.read(formats.PROFILE, run / "profile.json")
    assert said.code == 0
    assert profile.decision.verdict is Verdict.TABLE
    assert "Verdict: deploy this table" in said.out
    assert said.err == f"Profile: {run / 'profile.json'}\n"
    assert max(map(len, said.out.splitlines())) <= 80


def test_json_is_the_profile_and_nothing_else(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """With --json stdout is the file that was written."""
    run = _run(tmp_path / "run", steep)
    said = cli("fit", run, "--json")
    assert json.loads(said.out) == json.loads((run / "profile.json").read_text())
    assert said.err == ""


def test_a_narrow_terminal_cuts_no_number(
    cli: Any, tmp_path: Path, steep: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the grid does not fit, its lines run on: no number is shortened."""
    run = _run(tmp_path / "run", steep)
    wide = cli("fit", run).out.split()
    monkeypatch.setenv("COLUMNS", "30")
    narrow = cli("fit", run).out
    assert "…" not in narrow
    assert [word for word in narrow.split() if "±" in word] == [word for word in wide if "±" in word]


def test_no_color_wins(cli: Any, tmp_path: Path, steep: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR there is no escape sequence, though FORCE_COLOR asks for some."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    run = _run(tmp_path / "run", steep)
    assert "\x1b" in cli("fit", run).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("fit", run).out


def _on_a_gpu(run: Path) -> None:
    """Have the run say that it was measured on an H200, with every capture size up to 48 tokens."""
    path = run / "manifest.json"
    document = json.loads(path.read_text())
    document["manifest"]["environment"] |= {
        "device": "cuda",
        "device_name": "NVIDIA H200",
        "dtype": "bfloat16",
        "vllm_version": "0.32.0",
        "runner": "v2",
        "graphs_dsd": {"mode": "FULL_AND_PIECEWISE", "capture_sizes": list(range(1, 49))},
    }
    path.write_text(json.dumps(document))


def test_on_a_gpu_graphs_and_datasheet_are_told(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """A table that would miss graphs that were measured brings capture sizes; the datasheet stands by the bend."""
    run = _run(tmp_path / "run", steep)
    _on_a_gpu(run)
    said = " ".join(cli("fit", run).out.split())
    decision = formats.read(formats.PROFILE, run / "profile.json").decision
    assert f"emit-config gives {len(decision.capture_sizes)} sizes that keep them" in said
    assert "the datasheet of NVIDIA H200 puts it at 206 (16-bit weights)" in said
    line = cli("emit-config", run / "profile.json").out
    assert f"--cudagraph-capture-sizes {' '.join(map(str, decision.capture_sizes))} " in line


@pytest.mark.parametrize(
    ("law", "acceptance", "noise", "verdict"),
    [
        (FLAT, (0.8, 0.7), CALM, Verdict.FIXED),
        (STEEP, (0.02, 0.02), CALM, Verdict.OFF),
        (STEEP, (0.5, 0.4), WILD, Verdict.UNCLEAR),
    ],
    ids=["fixed", "off", "unclear"],
)
def test_exit_code_is_the_verdict(
    cli: Any, tmp_path: Path, law: CostLaw, acceptance: tuple[float, ...], noise: Noise, verdict: Verdict
) -> None:
    """A script learns from the exit code what a reader learns from the verdict."""
    said = cli("fit", _run(tmp_path / "run", _samples(law, acceptance, noise)))
    assert f"Verdict: {verdict}" in said.out
    assert said.code == {Verdict.FIXED: 0, Verdict.OFF: 4, Verdict.UNCLEAR: 5}[verdict]


def test_strict_turns_warnings_into_an_exit_code(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """With --strict a doubtful run ends with 5 and says the same; a clean one ends as ever."""
    wasteful = [replace(s, steps_run=2 * len(s.step_s)) for s in steep if isinstance(s, Block)]
    clean, doubtful = _run(tmp_path / "clean", steep), _run(tmp_path / "doubtful", wasteful)
    assert cli("fit", clean, "--strict").code == 0
    assert cli("fit", doubtful).code == 0
    said = cli("fit", doubtful, "--strict")
    assert said.code == 5
    assert "Warning" in said.out
    assert formats.read(formats.PROFILE, doubtful / "profile.json").warnings


def test_a_fit_can_be_repeated(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """A second fit says what the first said; it costs nothing but its own file."""
    run = _run(tmp_path / "run", steep)
    assert cli("fit", run).out == cli("fit", run).out


def test_an_unfinished_run_says_so(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """A run that was stopped is fitted with what it has, and warned of."""
    said = cli("fit", _run(tmp_path / "run", steep[: len(steep) - 20]))
    assert "not finished" in said.out


def test_no_such_folder(cli: Any, tmp_path: Path) -> None:
    """A folder that does not exist is no run directory."""
    assert "is no run directory" in cli("fit", tmp_path / "nowhere").refused(2)


def test_not_a_run_directory(cli: Any, tmp_path: Path) -> None:
    """A folder with other things in it is no run directory."""
    (tmp_path / "notes.txt").write_text("mine")
    assert "is no run directory" in cli("fit", tmp_path).refused(2)


def test_a_run_without_blocks(cli: Any, tmp_path: Path) -> None:
    """A run that was stopped before its first block is sent back to the sweep."""
    assert "no blocks of arm dsd and no_spec yet" in cli("fit", _run(tmp_path / "run", [])).refused(2)


def test_a_run_of_one_arm(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """Without the table's engine there is nothing to compare."""
    alone = [s for s in steep if s.cell.arm is Arm.NO_SPEC]
    assert "no blocks of arm dsd yet" in cli("fit", _run(tmp_path / "run", alone)).refused(2)


def test_samples_are_missing(cli: Any, tmp_path: Path, steep: Samples) -> None:
    """A run whose samples were deleted is refused by the name of the file."""
    run = _run(tmp_path / "run", steep)
    (run / "samples.jsonl").unlink()
    assert "samples.jsonl cannot be read" in cli("fit", run).refused(2)


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("samples.jsonl", '"block"', '"blok"', "line 2, is damaged"),
        ("samples.jsonl", '"steps_run":', '"steps_run":"x', "line 2, is not JSON"),
        ("samples.jsonl", '"round":0', '"round":"0"', "line 2, is damaged"),
        ("samples.jsonl", '"version":2', '"version":99', "was written by a newer dsd-tune (version 99)"),
        ("manifest.json", '"version": 3', '"version": 99', "was written by a newer dsd-tune (version 99)"),
        ("manifest.json", '"version": 3', '"version": "3"', "is damaged: version '3' never existed"),
        ("manifest.json", "dsd-tune manifest", "dsd-tune profile", "is no dsd-tune manifest"),
        ("manifest.json", '"rounds": 2', '"rounds": 0', "is damaged"),
        ("manifest.json", '"manifest": {', '"manifest": ', "is not JSON"),
    ],
    ids=lambda text: str(text)[:40],
)
def test_damaged_files_are_named(
    cli: Any, tmp_path: Path, steep: Samples, file: str, old: str, new: str, complaint: str
) -> None:
    """A damaged or newer file is refused in one sentence that says which file and why."""
    path = _run(tmp_path / "run", steep[:4]) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    sentence = cli("fit", path.parent).refused(2)
    assert str(path) in sentence
    assert complaint in sentence


def test_binary_rubbish_is_no_manifest(cli: Any, tmp_path: Path) -> None:
    """Bytes that are no text are refused like any other damage."""
    (tmp_path / "manifest.json").write_bytes(b"\x80\xff\x00")
    assert "is not JSON" in cli("fit", tmp_path).refused(2)
