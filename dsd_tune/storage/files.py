"""Bytes on disk that survive a crash, a full disk and a second process. Knows JSON, but no record."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dsd_tune.errors import DsdTuneError, UsageError

_LOCK = ".lock"


def read_json(path: Path) -> object:
    """The JSON value of a whole file; NaN and infinities are no JSON.

    Raises:
        UsageError: the file is missing, unreadable or not JSON.
    """
    return _parse(_read(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: {error.reason} at byte {error.start}.", "Check the path.") from error


def read_json_lines(path: Path) -> list[object]:
    """The JSON value of each line. A last line without its newline was never finished and is left out.

    Raises:
        UsageError: the file is missing or unreadable, or a finished line is not JSON; names the line.
    """
    finished = _read(path).split(b"\n")[:-1]
    return [_parse(line, f"{path}, line {number},") for number, line in enumerate(finished, start=1)]


def write_text(path: Path, text: str) -> None:
    """Replace a file by `text` in UTF-8, as `write_bytes` does.

    Raises:
        DsdTuneError: the disk refused, because it is full or not ours; the old file is untouched.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file by `data` in one step: after a crash it holds all of the old or all of the new.

    Raises:
        DsdTuneError: the disk refused, because it is full or not ours; the old file is untouched.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _explained(path):
        try:
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            _sync_directory(path.parent)
        finally:
            beside.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Make a directory, with those above it, unless it is there.

    Raises:
        DsdTuneError: the disk refused, or something else has that name.
    """
    with _explained(path):
        path.mkdir(parents=True, exist_ok=True)


def append_line(path: Path, text: str) -> None:
    """Add one line to an existing file and wait until it is on the disk; an unfinished last line is cut off first.

    Raises:
        DsdTuneError: the disk refused; the file is as it was.
    """
    with _explained(path), path.open("r+b", buffering=0) as file:
        end = _finished_size(file.fileno())
        file.truncate(end)
        try:
            _write_all(file.fileno(), text.encode() + b"\n", end)
            os.fsync(file.fileno())
        except OSError:
            # If this fails too, what is left has no newline, or was written whole: either is read rightly.
            with suppress(OSError):
                file.truncate(end)
            raise


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold `directory` for this process alone. The kernel lets go of it when the process ends, however it ends.

    Raises:
        UsageError: another holder, possibly in this process; names its process id.
    """
    with _explained(directory):
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, directory)
        with _explained(directory):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") or "unknown"
        raise UsageError(
            f"{directory} is in use by process {holder}.", "Wait for it to end, or name another directory."
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error


def _parse(text: bytes, where: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}.", "Restore the file from a copy, or measure again.") from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _finished_size(descriptor: int) -> int:
    """Bytes up to and with the last newline."""
    end = os.fstat(descriptor).st_size
    while end:
        begin = max(0, end - 65536)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    """A nearly full disk takes a part of the data and refuses the rest at the next call."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DsdTuneError(
            f"{path} cannot be written: {error.strerror}.",
            "Free space or fix the permissions, then run the same command again; what was measured is kept.",
        ) from error
