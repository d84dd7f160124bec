"""A folder in the user's cache: built once, put in place atomically, rebuilt when it is damaged."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MARKER = "complete.json"
_BUILDING = ".building-"


@dataclass(frozen=True, slots=True)
class CachedFolder:
    """A folder whose content is named by ``key``; ``build`` fills an empty directory with it.

    The folder is complete when its marker holds ``key`` and the size and modification time of every
    file. Reading 269 MB to prove it again at every start would cost more than it protects from.
    """

    path: Path
    key: str
    build: Callable[[Path], None]

    def __post_init__(self) -> None:
        """Reject a folder that no marker could vouch for."""
        if not self.key:
            raise ValueError(f"the cached folder {self.path} needs a key")

    def ensure(self) -> None:
        """Build the folder unless it is complete. The caller holds the lock of its parent."""
        if self.complete():
            return
        self._sweep()
        fresh = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self.path.parent))
        try:
            self.build(fresh)
            self._seal(fresh)
            self._place(fresh)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def complete(self) -> bool:
        """Tell whether the folder holds what was built, as far as sizes and times can tell."""
        try:
            marker = json.loads((self.path / _MARKER).read_text(encoding="utf-8"))
            return bool(marker == {"key": self.key, "files": _stamps(self.path)})
        except (OSError, ValueError):
            return False

    def _seal(self, fresh: Path) -> None:
        for file in _files(fresh):
            _sync(file)
        marker = fresh / _MARKER
        marker.write_text(json.dumps({"key": self.key, "files": _stamps(fresh)}), encoding="utf-8")
        _sync(marker)
        _sync(fresh)
        fresh.chmod(0o755)

    def _place(self, fresh: Path) -> None:
        if self.path.exists():
            # A folder cannot be renamed over a full one. A crash in between leaves none, which heals.
            self.path.rename(Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self.path.parent)) / "old")
        fresh.rename(self.path)
        _sync(self.path.parent)
        self._sweep()

    def _sweep(self) -> None:
        for leftover in self.path.parent.glob(f"{_BUILDING}*"):
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold ``directory`` alone among processes; the lock goes with the process that held it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MARKER)


def _stamps(folder: Path) -> dict[str, list[int]]:
    stats = {str(path.relative_to(folder)): path.stat() for path in _files(folder)}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
