"""Cells in a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from dsd_tune.records.measurement import Cell

_NAMED = 3


def listed(cells: Iterable[Cell]) -> str:
    """The first few by name, and how many more."""
    names = [str(cell) for cell in sorted(set(cells))]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
