"""`dsd-tune check FOLDER`: what keeps profiles from being published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

from dsd_tune.check.registry import Entry, entries

_WIDTH = 80


def examine(folder: Path, *, as_json: bool) -> tuple[str, int]:
    """What to print of a folder of runs, and the exit code: 1 if anything is wrong with any of them."""
    found = entries(folder)
    said = json.dumps([asdict(entry) for entry in found], indent=2) if as_json else _text(found)
    return said, int(any(entry.faults for entry in found))


def _text(found: Sequence[Entry]) -> str:
    width = max(len(entry.name) for entry in found)
    lines = []
    for entry in found:
        lines.append(f"{entry.name:<{width}}  {entry.verdict or 'no verdict'}")
        lines += [
            fill(f"error: {fault}", _WIDTH, initial_indent="  ", subsequent_indent="  ") for fault in entry.faults
        ]
    faults = sum(len(entry.faults) for entry in found)
    return "\n".join(
        [*lines, "", f"{len(found)} profile{'s' * (len(found) != 1)}, {faults or 'no'} error{'s' * (faults != 1)}"]
    )
