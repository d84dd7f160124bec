import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import a_block, a_failure, a_manifest, a_request, an_environment

from dsd_tune.errors import DsdTuneError, ProfileMismatch, UsageError
from dsd_tune.records.run import SweepRequest
from dsd_tune.storage import files, formats
from dsd_tune.storage.run_directory import RunDirectory, log_directory


def test_a_run_gives_back_what_was_put_in(tmp_path: Path) -> None:
    """A run opened later has the manifest and the samples it was given, in order."""
    run = RunDirectory.create(tmp_path / "runs" / "a", a_manifest())
    run.append(a_block())
    run.append(a_failure())
    again = RunDirectory.open(tmp_path / "runs" / "a")
    assert again.manifest == a_manifest()
    assert again.samples() == [a_block(), a_failure()]


def test_timings_are_the_samples_without_token_counts(tmp_path: Path) -> None:
    """What a picture of time needs is read without the counts of each prompt, and damage is still found."""
    run = RunDirectory.create(tmp_path, a_manifest())
    run.append(a_block())
    run.append(a_failure())
    assert run.timings() == [a_block(prompts=()), a_failure()]
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write('{"block":{"prompts":[]}}\n')
    with pytest.raises(UsageError, match="line 4, is damaged"):
        run.timings()


def test_step_times_are_rounded_to_a_tenth_of_a_microsecond(tmp_path: Path) -> None:
    """Step times keep seven decimals, which a clock cannot better and a file need not hold."""
    run = RunDirectory.create(tmp_path, a_manifest())
    run.append(a_block(step_s=(0.012345678901, 1.5)))
    assert run.samples() == [a_block(step_s=(0.0123457, 1.5))]


def test_the_same_manifest_resumes(tmp_path: Path) -> None:
    """Asked for the same again, a later time and version of ours notwithstanding, the run goes on as it was."""
    RunDirectory.create(tmp_path, a_manifest()).append(a_block())
    run = RunDirectory.create(tmp_path, a_manifest(created_at_s=99.0, dsd_tune_version="0.2.0"))
    run.append(a_failure())
    assert run.manifest == a_manifest()
    assert run.samples() == [a_block(), a_failure()]


def test_another_request_is_refused_with_its_keys(tmp_path: Path) -> None:
    """A run is not continued with another request; each differing key is named with both values."""
    RunDirectory.create(tmp_path, a_manifest())
    with pytest.raises(UsageError, match="another request") as raised:
        RunDirectory.create(tmp_path, a_manifest(request=a_request(steps=9, seed=2)))
    assert "steps: 8 against 9; seed: 1 against 2" in raised.value.what


def test_another_environment_is_refused_with_its_keys(tmp_path: Path) -> None:
    """A run is not continued elsewhere: each differing key is named, and the exit code says mismatch."""
    RunDirectory.create(tmp_path, a_manifest())
    with pytest.raises(ProfileMismatch, match="driver: 'none' against '570'") as raised:
        RunDirectory.create(tmp_path, a_manifest(environment=an_environment(driver="570")))
    assert raised.value.exit_code == 6


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A directory that holds other files is refused, and nothing is written into it."""
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(UsageError, match="not empty and holds no run"):
        RunDirectory.create(tmp_path, a_manifest())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_crash_before_the_manifest_does_not_block_the_directory(tmp_path: Path) -> None:
    """What a process left that died before its manifest was whole does not count as something else."""
    (tmp_path / ".lock").write_text("1")
    (tmp_path / ".manifest.json.1.tmp").write_text("{")
    assert RunDirectory.create(tmp_path, a_manifest()).samples() == []


def test_logs_may_come_before_the_run(tmp_path: Path) -> None:
    """Describing an engine leaves a log before there is a manifest, and the run begins all the same."""
    log_directory(tmp_path).mkdir()
    (log_directory(tmp_path) / "describe.log").write_text("...")
    assert RunDirectory.create(tmp_path, a_manifest()).samples() == []


def test_a_crash_between_manifest_and_samples_is_mended(tmp_path: Path) -> None:
    """A run that has a manifest and no samples yet can be resumed."""
    RunDirectory.create(tmp_path, a_manifest())
    (tmp_path / "samples.jsonl").unlink()
    assert RunDirectory.create(tmp_path, a_manifest()).samples() == []


@pytest.mark.parametrize("name", [".", "absent"])
def test_opening_needs_a_run(tmp_path: Path, name: str) -> None:
    """A directory without a manifest, or none at all, is no run."""
    with pytest.raises(UsageError, match="is no run directory"):
        RunDirectory.open(tmp_path / name)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A file in the place of the directory is named, not overwritten."""
    (tmp_path / "run").write_text("x")
    with pytest.raises(DsdTuneError, match="run cannot be used"):
        RunDirectory.create(tmp_path / "run", a_manifest())


def test_a_locked_run_is_refused_to_a_second_writer_but_not_to_readers(tmp_path: Path) -> None:
    """While one process measures, another can neither resume nor lock the run, but may read it."""
    run = RunDirectory.create(tmp_path, a_manifest())
    with run.lock():
        run.append(a_block())
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
            RunDirectory.create(tmp_path, a_manifest())
        with pytest.raises(UsageError, match="in use by"), run.lock():
            pass
        assert RunDirectory.open(tmp_path).samples() == [a_block()]
    with run.lock():
        run.append(a_failure())


def test_a_torn_line_is_lost_alone(tmp_path: Path) -> None:
    """After a crash amid a line, the run resumes with all samples before it."""
    RunDirectory.create(tmp_path, a_manifest()).append(a_block())
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write('{"block":{"cell"')
    run = RunDirectory.create(tmp_path, a_manifest())
    assert run.samples() == [a_block()]
    run.append(a_failure())
    assert run.samples() == [a_block(), a_failure()]


def test_resuming_an_older_file_brings_it_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of an older version are rewritten before the first new one is added: a file has one version."""

    def name_the_reason(line: Any, request: SweepRequest) -> Any:
        return {"failure": line["failure"] | {"reason": "unknown"}}

    run = RunDirectory.create(tmp_path, a_manifest())
    old = {key: value for key, value in formats.sample_document(a_failure())["failure"].items() if key != "reason"}
    path = tmp_path / "samples.jsonl"
    files.append_line(path, json.dumps({"failure": old}))
    monkeypatch.setattr(formats, "SAMPLES_VERSION", formats.SAMPLES_VERSION + 1)
    monkeypatch.setitem(formats.SAMPLE_UPGRADES, formats.SAMPLES_VERSION - 1, name_the_reason)
    assert run.samples() == [a_failure(reason="unknown")]
    RunDirectory.create(tmp_path, a_manifest()).append(a_block())
    assert formats.read_samples(path, a_request()) == (
        formats.SAMPLES_VERSION,
        [a_failure(reason="unknown"), a_block()],
    )
