"""A run directory's part in a study."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """`name` is the worker's in the study `study`.

    `storage` is where that is kept, without user and password; None if in the run directory itself.
    """

    name: str
    study: str
    storage: str | None
