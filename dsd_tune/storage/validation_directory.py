"""One validation on disk: what was asked, and the loads, which only ever grow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from dsd_tune.errors import DsdTuneError, UsageError
from dsd_tune.records.validation import Load, ValidationRequest
from dsd_tune.storage import files, formats


@dataclass(frozen=True, slots=True)
class ValidationDirectory:
    """A directory with its request; make one by `create`."""

    path: Path
    request: ValidationRequest

    @classmethod
    def create(cls, path: Path, request: ValidationRequest) -> ValidationDirectory:
        """Begin a validation, or go on with the one that is there if it asks the same.

        It may ask for more starts or fewer: `request` is then that with as many as were taken, if those are more.

        Raises:
            UsageError: the directory holds another validation, or another process is at work in it.
            DsdTuneError: it cannot be made or written to.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DsdTuneError(
                f"{path} cannot be used: {error.strerror}.", "Name a directory you may write to."
            ) from error
        with files.locked(path):
            if _head(path).exists():
                return cls._gone_on(path, request)
            # The head comes last: where it is, the other file is.
            formats.write_lines(formats.LOADS, path / "loads.jsonl", [])
            formats.write(formats.VALIDATION, _head(path), request)
            return cls(path, request)

    @classmethod
    def _gone_on(cls, path: Path, request: ValidationRequest) -> ValidationDirectory:
        there = formats.read(formats.VALIDATION, _head(path))
        _refuse_other(path, there, request)
        request = replace(request, starts=max(request.starts, _starts_taken(cls(path, there))))
        if request != there:
            formats.write(formats.VALIDATION, _head(path), request)
        return cls(path, request)

    @classmethod
    def beside(cls, path: Path, request: ValidationRequest) -> ValidationDirectory:
        """The validation in `path`, `path`-2, ... that asks the same, or a new one: others keep what they measured."""
        names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
        return cls.create(next(there for there in names if _may_hold(there, request)), request)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing.

        Raises:
            UsageError: another process is at work here; names its process id.
        """
        with files.locked(self.path):
            yield

    def loads(self) -> list[Load]:
        """What was measured so far, in that order."""
        return formats.read_lines(formats.LOADS, self.path / "loads.jsonl")

    def append(self, load: Load) -> None:
        """Add a load and wait until it is on the disk."""
        formats.append_line(self.path / "loads.jsonl", load)


def _head(path: Path) -> Path:
    return path / "validation.json"


def _may_hold(path: Path, request: ValidationRequest) -> bool:
    return not _head(path).exists() or not request.unlike(formats.read(formats.VALIDATION, _head(path)))


def _starts_taken(there: ValidationDirectory) -> int:
    """Up to the last that has all its loads."""
    taken = {(load.arm, load.start, load.concurrency) for load in there.loads()}
    needed = [(command.arm, c) for command in there.request.commands for c in there.request.concurrency]
    whole = (start for _, start, _ in taken if all((arm, start, c) in taken for arm, c in needed))
    return 1 + max(whole, default=-1)


def _refuse_other(path: Path, there: ValidationRequest, asked: ValidationRequest) -> None:
    if unlike := asked.unlike(there):
        raise UsageError(
            f"{path} holds a validation that asks something else ({', '.join(unlike)}).",
            "Ask for the same to go on with it, or name another directory with -o.",
        )
