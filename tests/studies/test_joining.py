from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_block, a_manifest, a_request, an_environment

from dsd_tune.errors import DsdTuneError, ProfileMismatch, UsageError
from dsd_tune.records.environment import Environment
from dsd_tune.records.run import SweepRequest
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.studies.address import Address
from dsd_tune.studies.joining import take_part
from dsd_tune.studies.study import Study

Visitor = Callable[..., list[Any]]


def _too_soon() -> Environment:
    raise AssertionError("the engine was asked for something that could have been refused before")


@pytest.fixture
def visit(tmp_path: Path) -> Visitor:
    """Takes part for a moment, by a directory's path under the test's own; gives back what the ledger held."""

    def visit(
        name: str,
        *,
        request: SweepRequest | None = None,
        describe: Callable[[], Environment] = an_environment,
        storage: str | None = f"{tmp_path}/journal.log",
        join: bool = False,
    ) -> list[Any]:
        with take_part(tmp_path / name, request or a_request(), describe, storage=storage, join=join) as ledger:
            return ledger.samples()

    return visit


def test_a_run_keeps_its_study_by_itself(visit: Visitor, tmp_path: Path) -> None:
    """Without another word the study is a file in the run directory, and the same command goes on with it."""
    visit("run", storage=None)
    visit("run", storage=None)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        ".lock",
        "manifest.json",
        "samples.jsonl",
        "study.db",
        "worker.json",
    }


@pytest.mark.parametrize("join", [True, False])
def test_another_request_is_refused(visit: Visitor, join: bool) -> None:
    """Whoever asks for something else learns which key differs before an engine is asked anything."""
    visit("a/run")
    with pytest.raises(UsageError, match=r"The study run in .* holds .* another request \(seed: 1 against 2"):
        visit("b/run", request=a_request(seed=2), describe=_too_soon, join=join)


def test_another_environment_is_refused(visit: Visitor) -> None:
    """Unlike fingerprints do not measure one run together; the key and both values are named."""
    visit("a/run")
    with pytest.raises(ProfileMismatch, match=r"driver: 'none' against '575\.1'"):
        visit("b/run", describe=lambda: an_environment(driver="575.1"), join=True)


def test_only_who_is_told_to_takes_part(visit: Visitor) -> None:
    """A new directory does not slip into a run that exists; --join is the way, and then needs no saying again."""
    visit("a/run")
    with pytest.raises(UsageError, match=r"holds a study named run already.*--join"):
        visit("b/run", describe=_too_soon)
    visit("b/run", join=True)
    visit("b/run")
    visit("a/run", join=True)


def test_the_only_study_needs_no_name(visit: Visitor, tmp_path: Path) -> None:
    """A directory of another name joins the one study there is, and stays with it when others are begun."""
    visit("first")
    visit("other", join=True)
    visit("second")
    visit("other", join=True)
    address = Address(f"{tmp_path}/journal.log")
    first = Study.find(address, address.open(), "first")
    assert first
    assert RunDirectory.open(tmp_path / "other").manifest == first.manifest


@pytest.mark.parametrize(("begun", "complaint"), [([], "there is none"), (["a", "b"], r"a, b")])
def test_what_there_is_to_join_is_listed(visit: Visitor, begun: list[str], complaint: str) -> None:
    """Where it is not clear which study is meant, the sentence names those there are."""
    for name in begun:
        visit(name)
    with pytest.raises(UsageError, match=rf"holds no study named c to join \({complaint}\)"):
        visit("c", describe=_too_soon, join=True)


def test_joining_needs_a_place(visit: Visitor) -> None:
    """--join by itself does not say what to join."""
    with pytest.raises(UsageError, match="--storage"):
        visit("run", storage=None, describe=_too_soon, join=True)


def test_a_shared_study_is_not_forgotten(visit: Visitor, tmp_path: Path) -> None:
    """A worker that goes on without --storage is told where its study is, and does not go on alone."""
    visit("run")
    with pytest.raises(UsageError, match=r"takes part in a study in .*journal.log.*--storage"):
        visit("run", storage=None, describe=_too_soon)


def test_two_runs_are_not_mixed(visit: Visitor, tmp_path: Path) -> None:
    """A directory that holds a run does not join another, though all be alike but the moment it began."""
    RunDirectory.create(tmp_path / "b" / "run", a_manifest()).append(a_block())
    visit("a/run")
    for join in (True, False):
        with pytest.raises(UsageError, match="holds another run than the study run in"):
            visit("b/run", describe=_too_soon, join=join)


def test_a_run_of_before_goes_on(visit: Visitor, tmp_path: Path) -> None:
    """A run that was measured without a study gets one, with all that it holds."""
    manifest = a_manifest(request=a_request(), environment=an_environment())
    RunDirectory.create(tmp_path / "run", manifest).append(a_block())
    assert visit("run", storage=None) == [a_block()]


def test_studies_of_others_are_left_alone(visit: Visitor, tmp_path: Path) -> None:
    """A storage may hold studies that are none of ours: they are no runs to join, and their names are taken."""
    import optuna

    Address(f"{tmp_path}/journal.log").open().create_new_study([optuna.study.StudyDirection.MINIMIZE], "run")
    with pytest.raises(UsageError, match="there is none"):
        visit("run", join=True)
    with pytest.raises(UsageError, match="holds a study named run already"):
        visit("run")


def test_a_study_is_begun_as_a_whole_or_not(visit: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a study is made leaves none behind that could be neither joined nor begun again."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("optuna.storages.JournalStorage.set_study_user_attr", interrupt)
        with pytest.raises(KeyboardInterrupt):
            visit("run")
    assert visit("run") == []


def test_secrets_stay_out_of_the_run(visit: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file in a run directory holds the password of its storage."""
    journal = Address(f"{tmp_path}/journal.log").open()
    monkeypatch.setattr(Address, "open", lambda _: journal)
    visit("run", storage="postgresql+psycopg://ann:hunter2@db.example/runs")
    texts = [path.read_text() for path in (tmp_path / "run").iterdir()]
    assert any("db.example/runs" in text for text in texts)
    assert not any("hunter2" in text or "ann" in text for text in texts)


def test_a_lost_storage_costs_no_samples(visit: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a storage goes away half-way the error says so, and what was measured is on the disk."""
    from dsd_tune.records.measurement import Arm
    from dsd_tune.records.visit import Visit

    def go_away(*_: object) -> None:
        raise OSError(5, "Input/output error")

    block = replace(a_block(), slot=9)
    visit_ = Visit(block.phase, (Arm.DSD,), block.condition, block.stop, block.repetition)

    def measure() -> None:
        with take_part(
            tmp_path / "run", a_request(), an_environment, storage=f"{tmp_path}/j.log", join=False
        ) as ledger:
            ledger.claim(visit_)
            monkeypatch.setattr("optuna.storages.journal.JournalFileBackend.append_logs", go_away)
            ledger.append(block)

    with pytest.raises(DsdTuneError, match=r"j.log cannot be reached: Input/output error.*what was measured is kept"):
        measure()
    assert RunDirectory.open(tmp_path / "run").samples() == [block]
