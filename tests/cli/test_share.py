"""Runs made ready to be shown to anyone, and the check of a folder of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_block, a_manifest, a_profile, a_request, an_environment

from dsd_tune.records.profile import Profile
from dsd_tune.records.published import Fact
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

PROFILES = Path(__file__).parents[2] / "profiles"
IMPORTED = PROFILES / "qwen3-32b-eagle3-gb200"
NAMES = ("--name", "/data/m=org/m", "--name", "/data/d=org/d")
ORIGIN = ("--source", "https://example.com/grid", "--licence", "Apache-2.0")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A fitted sweep of a model and a drafter in /data."""
    path = tmp_path / "run"
    environment = an_environment(model="/data/m", drafter="/data/d")
    request = a_request(model="/data/m", speculative_config='{"method":"eagle","model":"/data/d"}')
    RunDirectory.create(path, a_manifest(request=request, environment=environment)).rewrite([a_block()])
    formats.write(formats.PROFILE, path / "profile.json", a_profile(request=request, environment=environment))
    (path / "study.db").write_text("of this machine")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one fine import in it."""
    path = tmp_path / "profiles"
    shutil.copytree(IMPORTED, path / IMPORTED.name)
    (path / "README.md").write_text(f"| `{IMPORTED.name}` |\n")
    return path


def _faults(cli: Any, folder: Path) -> list[str]:
    said = cli("check", folder, "--json")
    faults = [fault for entry in json.loads(said.out) for fault in entry["faults"]]
    assert said.code == bool(faults)
    return faults


def _change(folder: Path, **changed: Any) -> None:
    path = folder / IMPORTED.name / "profile.json"
    formats.write(formats.PROFILE, path, replace(formats.read(formats.PROFILE, path), **changed))


def test_a_shared_run_is_the_run_under_other_names(cli: Any, run: Path, tmp_path: Path) -> None:
    """Its numbers, digests and samples are the same; no file of the machine comes along."""
    shared = tmp_path / "new" / "run"
    assert cli("share", run, "-o", shared, *NAMES).code == 0
    before, after = RunDirectory.open(run), RunDirectory.open(shared)
    assert after.samples() == before.samples()
    assert before.manifest.environment.differences(after.manifest.environment) == []
    assert after.manifest.request.speculative_config == '{"method":"eagle","model":"org/d"}'
    profile = formats.read(formats.PROFILE, shared / "profile.json")
    assert profile.environment == after.manifest.environment
    assert profile.decision == a_profile().decision
    assert {path.name for path in shared.iterdir() if path.suffix} == {"manifest.json", "samples.jsonl", "profile.json"}


def test_a_path_without_a_name_is_refused(cli: Any, run: Path, tmp_path: Path) -> None:
    """The first that is left is named with the flag that helps, and nothing is written."""
    said = cli("share", run, "-o", tmp_path / "new", *NAMES[:2]).refused(2)
    assert "/data/d is a path of this machine" in said
    assert "--name /data/d=NAME" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--name", "/data/m"), "names nothing"),
        (("--name", "=org/m"), "names nothing"),
        ((*NAMES, "--source", "here"), "its own source"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
    cli: Any, run: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """A name without a path, a path without a name, and a source for what was measured here."""
    assert said in cli("share", run, "-o", tmp_path / "new", *words).refused(2)


def test_nothing_is_overwritten(cli: Any, run: Path) -> None:
    """A directory that holds something is left as it is, the run itself among them."""
    assert "exists already" in cli("share", run, "-o", run, *NAMES).refused(2)


def test_a_run_without_a_profile_is_refused(cli: Any, run: Path, tmp_path: Path) -> None:
    """It says how to make one."""
    (run / "profile.json").unlink()
    assert "dsd-tune fit" in cli("share", run, "-o", tmp_path / "new").refused(2)


def test_numbers_of_others_need_an_origin(cli: Any, tmp_path: Path) -> None:
    """An import is shared with source and licence, which its profile then states, and not without."""
    grid, bare, shared = tmp_path / "grid.csv", tmp_path / "bare", tmp_path / "shared"
    grid.write_text("batch_size,k,tpot_ms\n1,0,10\n1,1,8\n4,0,12\n4,1,11\n")
    assert cli("import", grid, "--arm", "static", "--k0", "no_spec", "-o", bare).code == 0
    assert cli("fit", bare).code in (0, 4, 5)
    assert "--source TEXT --licence TEXT" in cli("share", bare, "-o", shared).refused(2)
    assert "a licence" in cli("share", bare, "-o", shared, *ORIGIN[:2]).refused(2)
    assert cli("share", bare, "-o", shared, *ORIGIN).code == 0
    profile = formats.read(formats.PROFILE, shared / "profile.json")
    assert (profile.fact("source"), profile.fact("licence")) == ORIGIN[1::2]


def test_a_fine_folder_passes(cli: Any, folder: Path, run: Path) -> None:
    """Imports and sweeps beside each other, each with its verdict."""
    assert cli("share", run, "-o", folder / "mine", *NAMES).code == 0
    (folder / "README.md").write_text(f"`{IMPORTED.name}` `mine`")
    said = cli("check", folder)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "2 profiles, no errors"
    assert max(map(len, said.out.splitlines())) <= 80


def test_a_folder_that_says_nothing_of_a_run_fails(cli: Any, folder: Path) -> None:
    """Every directory has to be named in the README, which may be missing altogether."""
    (folder / "README.md").unlink()
    assert [fault.endswith(f"does not name `{IMPORTED.name}`.") for fault in _faults(cli, folder)] == [True]


def test_an_origin_that_is_not_stated_fails(cli: Any, folder: Path) -> None:
    """In the import and in its profile alike."""
    _change(folder, facts=(Fact("model", "a model"),))
    assert ["source" in fault or "licence" in fault for fault in _faults(cli, folder)] == [True, True]


def test_a_path_of_a_machine_fails(cli: Any, folder: Path) -> None:
    """In any text of a profile."""
    found = formats.read(formats.PROFILE, folder / IMPORTED.name / "profile.json")
    _change(folder, facts=(*found.facts, Fact("weights", "in /home/ann/weights")))
    (fault,) = _faults(cli, folder)
    assert fault.startswith("/home/ann/weights is a path")


def test_an_old_format_fails(cli: Any, folder: Path) -> None:
    """A file that is only read because it can be upgraded has to be written anew."""
    old = Path(__file__).parents[1] / "data" / "golden"
    shutil.copytree(folder / IMPORTED.name, folder / "old")
    (folder / "README.md").write_text(f"`{IMPORTED.name}` `old`")
    shutil.copy(old / "profile-6.json", folder / "old" / "profile.json")
    assert any("profile.json is of an older format than" in fault for fault in _faults(cli, folder))


def _without_blocks(run: Path) -> None:
    RunDirectory.open(run).rewrite([])


def _of_another_machine(run: Path) -> None:
    profile: Profile = formats.read(formats.PROFILE, run / "profile.json")
    assert profile.environment
    environment = replace(profile.environment, device_name="another")
    formats.write(formats.PROFILE, run / "profile.json", replace(profile, environment=environment))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without_blocks, "no block"),
        (_of_another_machine, "not fitted from the run beside it"),
        (lambda run: (run / "profile.json").unlink(), "profile.json"),
        (lambda run: (run / "manifest.json").unlink(), "no run directory"),
        (lambda run: (run / "samples.jsonl").write_text("{}"), "samples"),
    ],
    ids=["no blocks", "another machine", "no profile", "no manifest", "damaged samples"],
)
def test_a_run_that_does_not_belong_together_fails(cli: Any, run: Path, folder: Path, damage: Any, said: str) -> None:
    """One sentence for each thing that is missing, damaged or foreign; the others are still checked."""
    assert cli("share", run, "-o", folder / "mine", *NAMES).code == 0
    (folder / "README.md").write_text(f"`{IMPORTED.name}` `mine`")
    damage(folder / "mine")
    (fault,) = _faults(cli, folder)
    assert said in fault


def test_an_empty_folder_and_flags_of_a_server_are_refused(cli: Any, folder: Path, tmp_path: Path) -> None:
    """Neither is a check that passed, and a folder that is not there is none either."""
    assert "or a folder of runs" in cli("check", tmp_path / "none").refused(2)
    (tmp_path / "empty").mkdir()
    assert "holds no run directory" in cli("check", tmp_path / "empty").refused(2)
    assert "checked by itself" in cli("check", folder, "--max-num-seqs", 4).refused(2)
