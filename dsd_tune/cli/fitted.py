"""A profile by its own path or by that of the run it was fitted from."""

from __future__ import annotations

from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile
from dsd_tune.storage import formats, published
from dsd_tune.storage.run_directory import RunDirectory


def fitted(path: Path) -> Profile:
    """The profile in a file, or in the run directory that `fit` left it in.

    Raises:
        UsageError: there is none, or it cannot be read; a run that was not fitted yet is told from no run.
    """
    if not path.is_dir():
        return formats.read(formats.PROFILE, path)
    profile = path / "profile.json"
    if not profile.is_file():
        if not published.is_import(path):
            RunDirectory.open(path)
        raise UsageError(f"{path} has no profile yet.", f"Run dsd-tune fit {path}.")
    return formats.read(formats.PROFILE, profile)
