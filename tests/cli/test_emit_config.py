import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_profile

from dsd_tune.emit import Format, emit
from dsd_tune.records.profile import Verdict
from dsd_tune.storage import formats


def _file(folder: Path, verdict: Verdict = Verdict.TABLE) -> Path:
    profile = a_profile()
    path = folder / "profile.json"
    formats.write(formats.PROFILE, path, replace(profile, decision=replace(profile.decision, verdict=verdict)))
    return path


@pytest.mark.parametrize("form", list(Format))
def test_stdout_is_what_to_paste(cli: Any, tmp_path: Path, form: Format) -> None:
    """Stdout holds the text in the format asked for and nothing else; stderr is silent."""
    said = cli("emit-config", _file(tmp_path), "--format", form)
    assert said.out == emit(a_profile(), form) + "\n"
    assert (said.code, said.err) == (0, "")


def test_a_serve_line_is_the_default(cli: Any, tmp_path: Path) -> None:
    """Without a format the output is one line for a shell."""
    said = cli("emit-config", _file(tmp_path))
    assert shlex.split(said.out)[:2] == ["vllm", "serve"]
    assert said.out.count("\n") == 1


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.OFF, 4), (Verdict.UNCLEAR, 5)])
def test_no_advice_leaves_the_config_out(cli: Any, tmp_path: Path, verdict: Verdict, code: int) -> None:
    """Where nothing is advised the line goes without speculation, the exit code says so, and stderr says why."""
    said = cli("emit-config", _file(tmp_path, verdict))
    assert said.code == code
    assert shlex.split(said.out)[:3] == ["vllm", "serve", "simulated"]
    assert "--speculative-config" not in said.out
    assert str(verdict) in said.err
    assert "Leave --speculative-config out" in said.err
    assert json.loads(cli("emit-config", _file(tmp_path, verdict), "--format", "json").out) is None


def test_no_such_file(cli: Any, tmp_path: Path) -> None:
    """A profile that does not exist is refused by name."""
    assert "nowhere.json cannot be read" in cli("emit-config", tmp_path / "nowhere.json").refused(2)


def test_a_folder_is_no_profile(cli: Any, tmp_path: Path) -> None:
    """A run directory in place of its profile is refused, and not with a traceback."""
    assert "cannot be read" in cli("emit-config", tmp_path).refused(2)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("dsd-tune profile", "dsd-tune manifest", "is no dsd-tune profile"),
        ('"version": 2', '"version": 99', "was written by a newer dsd-tune (version 99)"),
        ('"verdict": "deploy this table"', '"verdict": "hope"', "is damaged"),
        ('"fixed_k": 2', '"fixed_k": null', "is damaged"),
        ('"profile": {', '"profile": [', "is not JSON"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_damaged_profiles_are_refused(cli: Any, tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """A file of another kind, a newer version or a damaged one is refused in one sentence."""
    path = _file(tmp_path)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert complaint in cli("emit-config", path).refused(2)


def test_an_unknown_format_is_a_usage_error(cli: Any, tmp_path: Path) -> None:
    """A format that does not exist ends with exit code 2 and the list of those that do."""
    said = cli("emit-config", _file(tmp_path), "--format", "toml")
    assert (said.code, said.out) == (2, "")
    assert all(form in said.err for form in Format)
    assert "Traceback" not in said.err
