"""A run directory that holds an import: one file, written once."""

from __future__ import annotations

from pathlib import Path

from dsd_tune.errors import DsdTuneError, UsageError
from dsd_tune.records.published import Published
from dsd_tune.storage import files, formats

_NAME = "published.json"


def is_import(run: Path) -> bool:
    """Whether a run directory holds an import rather than a sweep."""
    return (run / _NAME).is_file()


def save(run: Path, published: Published, *, force: bool) -> Path:
    """Write an import into a new or empty directory, or with `force` over an earlier import. Returns the file.

    Raises:
        UsageError: the directory holds an import or something else, or another process is at work in it.
        DsdTuneError: the disk refused.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        visible = [entry for entry in run.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise DsdTuneError(f"{run} cannot be used: {error.strerror}.", "Name a directory you may write to.") from error
    if is_import(run) and not force:
        raise UsageError(f"{run} holds an import already.", "Name a new directory, or overwrite it with --force.")
    if visible and not is_import(run):
        raise UsageError(f"{run} is not empty and holds no import.", "Name a new or empty directory.")
    with files.locked(run):
        formats.write(formats.PUBLISHED, run / _NAME, published)
    return run / _NAME


def load(run: Path) -> Published:
    """The import in a run directory.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    return formats.read(formats.PUBLISHED, run / _NAME)
