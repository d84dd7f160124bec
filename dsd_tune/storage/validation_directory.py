"""One validation on disk: what was asked, and the loads, which only ever grow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
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

        Raises:
            UsageError: the directory holds another validation.
            DsdTuneError: it cannot be made or written to.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DsdTuneError(
                f"{path} cannot be used: {error.strerror}.", "Name a directory you may write to."
            ) from error
        head = path / "validation.json"
        if head.exists():
            _refuse_other(path, formats.read(formats.VALIDATION, head), request)
        else:
            formats.write(formats.VALIDATION, head, request)
            formats.write_lines(formats.LOADS, path / "loads.jsonl", [])
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


def _may_hold(path: Path, request: ValidationRequest) -> bool:
    head = path / "validation.json"
    return not head.exists() or formats.read(formats.VALIDATION, head) == request


def _refuse_other(path: Path, there: ValidationRequest, asked: ValidationRequest) -> None:
    unlike = [f.name for f in fields(there) if getattr(there, f.name) != getattr(asked, f.name)]
    if unlike:
        raise UsageError(
            f"{path} holds a validation that asks something else ({', '.join(unlike)}).",
            "Ask for the same to go on with it, or name another directory with -o.",
        )
