"""Prompts from a JSONL file: one object a line, its text under `prompt`, optionally `id` and `split`."""

from __future__ import annotations

import json
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage import files

HELD_OUT = "held_out"
"""Where lines name a `split`, only these are measured: a drafter must not be judged on what it was trained on."""


def load_prompts(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a file in its order.

    Raises:
        UsageError: no such file, no JSON, no prompt in it, or a line without text; names the line.
    """
    # Not splitlines: a prompt may hold other line separators, which JSON need not escape.
    lines = files.read_text(path).split("\n")
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if any("split" in row for row in rows):
        rows = [row for row in rows if row.get("split") == HELD_OUT]
    if not rows:
        raise UsageError(f"{path} holds no prompts.", 'Give one JSON object a line, such as {"prompt": "..."}.')
    names = [str(number) if row.get("id") in {None, ""} else str(row["id"]) for number, row in enumerate(rows, 1)]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated:
        raise UsageError(f"{path} has two prompts with id {repeated}.", "Give each its own id, or none to any.")
    return tuple(Prompt(name, str(row["prompt"])) for name, row in zip(names, rows, strict=True))


def _row(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}, line {number} is not JSON: {error}.", "Give one JSON object a line.") from error
    text = row.get("prompt") if isinstance(row, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f'{path}, line {number} has no "prompt" text.', 'Give lines such as {"prompt": "..."}.')
    if not isinstance(row.get("id"), str | int | float | None):
        raise UsageError(f"{path}, line {number} has an id that is no string or number.", "Name it, or leave id out.")
    return dict(row)
