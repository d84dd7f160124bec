"""How a run directory gets its ledger: begins a study, goes on in its own, or joins one that others began."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from dsd_tune.errors import UsageError
from dsd_tune.records.environment import Environment
from dsd_tune.records.run import Manifest, SweepRequest
from dsd_tune.records.worker import Worker
from dsd_tune.storage import formats
from dsd_tune.storage.identity import require_same_request, require_same_run
from dsd_tune.storage.run_directory import RunDirectory, study_file
from dsd_tune.studies.address import Address
from dsd_tune.studies.ledger import StudyLedger
from dsd_tune.studies.pulse import GRACE_S, INTERVAL_S
from dsd_tune.studies.study import Study, names, taken

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


@contextmanager
def take_part(
    path: Path,
    request: SweepRequest,
    describe: Callable[[], Environment],
    *,
    storage: str | None,
    join: bool,
    interval_s: float = INTERVAL_S,
    grace_s: float = GRACE_S,
) -> Iterator[StudyLedger]:
    """The ledger of the run in `path`, for as long as the `with` lasts; whatever can be refused is, before `describe`.

    `storage` is the user's word for where studies are kept; without it the run has a file of its own.

    Raises:
        UsageError: another request, no study to join, or one that may not be taken for granted.
        ProfileMismatch: the run was measured in another environment; names the keys.
        DsdTuneError: the storage cannot be reached.
    """
    RunDirectory.require_usable(path, request)
    worker = _worker(path)
    address = _address(path, storage, worker, join=join)
    opened = address.open()
    study = _found(path, address, opened, worker, join=join)
    if study:
        require_same_request(study.manifest, request, study.where)
        _require_own(path, study, join=join)
    manifest = Manifest(request, describe(), time.time(), version("dsd-tune"))
    if study:
        require_same_run(study.manifest, manifest, study.where)
    run = RunDirectory.create(path, study.manifest if study else manifest)
    with run.lock():
        study = study or Study.create(address, opened, _study_name(path, worker), run.manifest)
        name = worker.name if worker else f"{socket.gethostname()}-{secrets.token_hex(3)}"
        formats.write(formats.WORKER, _file(path), Worker(name, study.name, None if storage is None else str(address)))
        with StudyLedger(run, study, name, interval_s=interval_s, grace_s=grace_s) as ledger:
            yield ledger


def _address(path: Path, storage: str | None, worker: Worker | None, *, join: bool) -> Address:
    if storage is not None:
        return Address(storage)
    if worker and worker.storage is not None:
        raise UsageError(f"{path} takes part in a study in {worker.storage}.", "Name that again with --storage.")
    if join and not worker:
        raise UsageError("--join does not say where the study is.", "Name it with --storage.")
    return Address.of_sqlite(study_file(path))


def _found(path: Path, address: Address, opened: BaseStorage, worker: Worker | None, *, join: bool) -> Study | None:
    """The study that has the directory's name; whoever joins may also mean the only one there."""
    name = _study_name(path, worker)
    study = Study.find(address, opened, name)
    if study or not join:
        return study
    there = names(address, opened)
    if len(there) == 1 and not worker:
        return Study.find(address, opened, there[0])
    raise UsageError(
        f"{address} holds no study named {name} to join ({', '.join(there) or 'there is none'}).",
        "Name the run directory like the study, or begin one without --join.",
    )


def _require_own(path: Path, study: Study, *, join: bool) -> None:
    """A study is gone on with by a directory of the same run; a new directory takes part only where it is told to."""
    if not RunDirectory.is_one(path):
        if not join:
            raise taken(study.address, study.name)
    elif RunDirectory.open(path).manifest != study.manifest:
        raise UsageError(
            f"{path} holds another run than the study {study.name} in {study.address}.", "Name a new directory."
        )


def _study_name(path: Path, worker: Worker | None) -> str:
    return worker.study if worker else path.resolve().name


def _worker(path: Path) -> Worker | None:
    return formats.read(formats.WORKER, _file(path)) if _file(path).exists() else None


def _file(path: Path) -> Path:
    return path / "worker.json"
