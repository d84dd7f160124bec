"""The flags of `fit` that say what is aimed at."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.model.aim import Aim
from dsd_tune.records.objective import Objective
from dsd_tune.storage import files


def stated_aim(
    objective: Objective, goodput: str | None, concurrency: Path | None, peak: int | None, capture_limit: int | None
) -> Aim:
    """The aim that the flags state.

    Raises:
        UsageError: two of them contradict each other, or one cannot be read.
    """
    if concurrency and peak:
        raise UsageError("--concurrency and --peak both say how often batch sizes happen.", "Give one of them.")
    return Aim(
        objective=objective,
        slo_s=_slo_s(goodput) if goodput else None,
        histogram=_histogram(concurrency) if concurrency else (),
        peak=peak,
        capture_limit=capture_limit,
    )


def _slo_s(goodput: str) -> float:
    name, _, text = goodput.partition(":")
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if name != "tpot" or not 0 < milliseconds < math.inf:
        raise UsageError(f"--goodput {goodput} is no limit of TPOT.", "Give milliseconds, such as --goodput tpot:30.")
    return milliseconds / 1e3


def _histogram(path: Path) -> tuple[tuple[int, float], ...]:
    try:
        rows = [row for row in csv.reader(files.read_text(path).splitlines()) if row and row[0].lstrip()[:1] != "#"]
        pairs = _pairs(rows)
    except (ValueError, csv.Error) as error:
        raise UsageError(
            f"{path} is no histogram: {error}.", "Give a header and lines of batch_size,weight."
        ) from error
    valid = all(size >= 1 and 0 <= weight < math.inf for size, weight in pairs)
    if not valid or not sum(weight for _, weight in pairs):
        raise UsageError(f"{path} needs batch sizes of 1 or more and weights above 0.", "Correct the file.")
    return pairs


def _pairs(rows: list[list[str]]) -> tuple[tuple[int, float], ...]:
    if rows and _is_numbers(rows[0]):
        raise ValueError("its first line holds numbers")
    return tuple(_pair(row) for row in rows[1:])


def _pair(row: list[str]) -> tuple[int, float]:
    """Spreadsheets write whole numbers as 8.0, too."""
    size, weight = map(float, row)
    if not size.is_integer():
        raise ValueError(f"{row[0]} is no batch size")
    return int(size), weight


def _is_numbers(row: list[str]) -> bool:
    try:
        return all(math.isfinite(float(cell)) for cell in row)
    except ValueError:
        return False
