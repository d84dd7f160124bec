import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_block, a_decided_profile, a_manifest, a_profile, a_validation

from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.validation import ServedArm
from dsd_tune.report.html_page import page
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

PNG = b"\x89PNG\r\n"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A profile on disk."""
    path = tmp_path / "profile.json"
    formats.write(formats.PROFILE, path, a_profile())
    return path


def _run(path: Path, profile: Profile | None = None) -> Path:
    """A run directory with a few blocks, and a profile if there is one."""
    run = RunDirectory.create(path, a_manifest())
    for place in range(4):
        run.append(a_block(round=place, start=place))
    if profile:
        formats.write(formats.PROFILE, path / "profile.json", profile)
    return path


def test_show_prints_what_fit_printed(cli: Any, saved: Path) -> None:
    """Grid, verdict and boundaries come from disk, in 80 columns; showing is no verdict, so the exit code is 0."""
    said = cli("show", saved)
    assert (said.code, said.err) == (0, "")
    for wanted in ("TPOT in ms", "Verdict: deploy this table: [[1,4,2],[5,16,0]]", "After B=4", "few starts"):
        assert wanted in said.out
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda verdict: verdict.name)
def test_show_ends_well_whatever_it_shows(cli: Any, tmp_path: Path, verdict: Verdict) -> None:
    """Any verdict can be shown, and is no error."""
    formats.write(formats.PROFILE, tmp_path / "profile.json", a_decided_profile(verdict))
    said = cli("show", tmp_path / "profile.json")
    assert said.code == 0
    assert f"Verdict: {verdict}" in said.out


def test_show_finds_the_profile_of_a_run(cli: Any, saved: Path, tmp_path: Path) -> None:
    """A run directory stands for the profile in it."""
    assert cli("show", _run(tmp_path / "run", a_profile())).out == cli("show", saved).out


def test_show_says_what_servers_left(cli: Any, tmp_path: Path) -> None:
    """Where servers refuted the table, it is not the verdict on the screen; JSON is the file, record and all."""
    record = a_validation(ServedArm.TABLE, Said.WORSE, {ServedArm.TABLE: Said.WORSE})
    refuted = a_decided_profile(Verdict.TABLE)
    formats.write(formats.PROFILE, tmp_path / "profile.json", replace(refuted, validation=record))
    said = cli("show", tmp_path / "profile.json")
    assert "Verdict: turn speculation off" in said.out
    assert "on servers, table is worse than no speculation" in " ".join(said.out.split())
    shown = json.loads(cli("show", tmp_path / "profile.json", "--json").out)["profile"]
    assert shown["decision"]["verdict"] == Verdict.TABLE
    assert shown["validation"]["said"] == Said.WORSE


def test_show_json_is_the_profile(cli: Any, saved: Path) -> None:
    """A script reads the file as it is, in today's version."""
    assert json.loads(cli("show", saved, "--json").out) == json.loads(saved.read_text())


def test_show_json_brings_old_profiles_up_to_date(cli: Any) -> None:
    """A profile of version 1 comes out as one of today."""
    old = Path(__file__).parents[1] / "data" / "golden" / "profile-1.json"
    assert json.loads(cli("show", old, "--json").out)["version"] == formats.PROFILE_VERSION


@pytest.mark.parametrize("words", [["show"], ["report", "-o", "x.html"]], ids=["show", "report"])
def test_a_run_without_a_profile_is_sent_to_fit(cli: Any, tmp_path: Path, words: list[str]) -> None:
    """Who forgot to fit is told so, with the command."""
    run = _run(tmp_path / "run")
    said = cli(words[0], run, *words[1:]).refused(2)
    assert said == f"{run} has no profile yet. Run dsd-tune fit {run}."


@pytest.mark.parametrize("words", [["show"], ["report", "-o", "x.html"]], ids=["show", "report"])
def test_other_things_are_no_profile(cli: Any, tmp_path: Path, words: list[str]) -> None:
    """A missing file, a file of another kind and a folder without a run are each named."""
    (tmp_path / "notes.txt").write_text("{}")
    assert "cannot be read" in cli(words[0], tmp_path / "none.json", *words[1:]).refused(2)
    assert "is no dsd-tune profile" in cli(words[0], tmp_path / "notes.txt", *words[1:]).refused(2)
    assert "is no run directory" in cli(words[0], tmp_path, *words[1:]).refused(2)


def test_a_report_is_one_file(cli: Any, saved: Path, tmp_path: Path) -> None:
    """The page is written where it was asked for, named on stdout, and nothing else appears."""
    before = set(tmp_path.iterdir())
    out = tmp_path / "report.html"
    said = cli("report", saved, "-o", out)
    assert (said.code, said.out, said.err) == (0, f"{out}\n", "")
    assert set(tmp_path.iterdir()) - before == {out}
    assert out.read_text().startswith("<!doctype html>")


def test_a_run_shows_how_the_machine_drifted(cli: Any, saved: Path, tmp_path: Path) -> None:
    """With the run's blocks at hand the report has one picture more, and says so where they are not."""
    run = _run(tmp_path / "run", a_profile())
    cli("report", run, "-o", tmp_path / "run.html")
    cli("report", saved, "-o", tmp_path / "profile.html")
    of_run, of_profile = ((tmp_path / name).read_text() for name in ("run.html", "profile.html"))
    assert of_run.count("<figure>") == of_profile.count("<figure>") + 1
    assert "blocks are not drawn" in of_profile
    assert "blocks are not drawn" not in of_run


def test_an_import_can_be_reported(cli: Any, tmp_path: Path) -> None:
    """From a grid of others to a page, with nothing but the commands."""
    grid = tmp_path / "grid.csv"
    rows = [f"{b},{k},{10 + b / 4 + k * b / 8}" for b in (1, 4, 16) for k in (0, 1, 2)]
    grid.write_text("\n".join(["batch_size,k,tpot_ms", *rows]))
    run = tmp_path / "run"
    cli("import", grid, "-o", run)
    cli("fit", run)
    assert cli("report", run, "-o", tmp_path / "report.html").code == 0
    assert "measured by others" in (tmp_path / "report.html").read_text()
    assert "Warning" in cli("show", run).out


def test_pictures_go_to_a_folder_and_markdown_links_to_them(cli: Any, saved: Path, tmp_path: Path) -> None:
    """The folder is made, holds PNG files, and the text finds them from where it lies."""
    out, folder = tmp_path / "notes" / "report.md", tmp_path / "pictures" / "today"
    out.parent.mkdir()
    assert cli("report", saved, "-o", out, "--format", "md", "--png", folder).code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["acceptance.png", "choices.png", "gain.png", "step_time.png", "tpot.png"]
    assert all(path.read_bytes().startswith(PNG) for path in folder.iterdir())
    assert "](<../pictures/today/tpot.png>)" in out.read_text()


def test_nothing_is_overwritten_unasked(cli: Any, saved: Path, tmp_path: Path) -> None:
    """A report or a picture that is there stays as it is, and stops the rest, until --force is given."""
    out, folder = tmp_path / "report.html", tmp_path / "png"
    out.write_text("mine")
    assert "report.html exists already" in cli("report", saved, "-o", out).refused(2)
    assert out.read_text() == "mine"
    folder.mkdir()
    (folder / "gain.png").write_text("mine")
    other = tmp_path / "other.html"
    assert "gain.png exists already" in cli("report", saved, "-o", other, "--png", folder).refused(2)
    assert not other.exists()
    assert cli("report", saved, "-o", out, "--png", folder, "--force").code == 0
    assert out.read_text() != "mine"
    assert (folder / "gain.png").read_bytes().startswith(PNG)


def test_a_place_that_cannot_be_written_is_named(cli: Any, saved: Path, tmp_path: Path) -> None:
    """A folder that is missing, or is a file, ends with one sentence."""
    assert "cannot be written" in cli("report", saved, "-o", tmp_path / "no" / "report.html").refused(1)
    assert "cannot be written" in cli("report", saved, "-o", tmp_path / "x.html", "--png", saved).refused(1)


def test_a_report_says_which_vllm_obeys(cli: Any, tmp_path: Path) -> None:
    """What emit-config notes beside a table stands in the report, too."""
    profile = a_decided_profile(runner="v1", device="cpu")
    formats.write(formats.PROFILE, tmp_path / "profile.json", profile)
    cli("report", tmp_path / "profile.json", "-o", tmp_path / "report.md", "--format", "md")
    (noted,) = [line for line in cli("emit-config", tmp_path / "profile.json").err.splitlines() if "obeys" in line]
    text = (tmp_path / "report.md").read_text().replace("\\", "")
    assert noted.removeprefix("Note: ").removesuffix(".") in text


def test_a_config_that_no_file_can_hold_does_not_stop_a_report(cli: Any, tmp_path: Path) -> None:
    """Flags that a --config file cannot say are named in its place."""
    profile = a_decided_profile(flags=("--hf-overrides", "a", "--hf-overrides", "b"))
    formats.write(formats.PROFILE, tmp_path / "profile.json", profile)
    cli("report", tmp_path / "profile.json", "-o", tmp_path / "report.html")
    assert "A config file cannot say" in (tmp_path / "report.html").read_text()


def test_reports_do_not_depend_on_the_hour(saved: Path) -> None:
    """The same profile gives the same page to the byte."""
    from dsd_tune.report.content import document

    profile = formats.read(formats.PROFILE, saved)
    assert page(document(profile, [], ())) == page(document(replace(profile), [], ()))


def test_a_report_says_what_servers_left_of_the_advice(cli: Any, tmp_path: Path) -> None:
    """A table that servers refuted is neither the headline nor pasted; the page says who says so."""
    refuted = a_validation(ServedArm.TABLE, Said.WORSE, {})
    profile = replace(a_decided_profile(Verdict.TABLE), validation=refuted)
    formats.write(formats.PROFILE, tmp_path / "profile.json", profile)
    assert cli("report", tmp_path / "profile.json", "-o", tmp_path / "r.md", "--format", "md").code == 0
    text = (tmp_path / "r.md").read_text()
    assert "on servers, table is worse than no speculation" in text
    assert "num_speculative_tokens_per_batch_size" not in text
