"""A validation for the terminal, while it runs and when it is done. 80 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ArmComparison, Load, Prediction, ServedArm, Validation, ValidationRequest
from dsd_tune.report.grid import facts


@dataclass(slots=True)
class Progress:
    """One line for each server start and each load, on stderr."""

    console: Console
    request: ValidationRequest
    done: int = field(default=0)

    def starting(self, arm: ServedArm, start: int, of: int) -> None:
        """A server is about to start."""
        self._say(f"starting a server: {arm.words}, start {start + 1} of {of}")

    def loaded(self, load: Load) -> None:
        """A load is done."""
        self.done += 1
        self._say(
            f"{load.arm.words}, {load.concurrency} at a time: TPOT {load.tpot_s * 1e3:.1f} ms, "
            f"{load.throughput:.0f} tokens/s"
        )

    def _say(self, text: str) -> None:
        total = len(self.request.commands) * self.request.starts * len(self.request.concurrency)
        said = f"{self.done} of {total} loads: {text}" if total else text
        self.console.print(said, markup=False, highlight=False, soft_wrap=True)


def render(validation: Validation) -> RenderableType:
    """Predicted against measured, every comparison, and what follows."""
    grids = (_predictions(validation), *_comparisons(validation))
    parts: list[RenderableType] = [part for grid in grids for part in (grid, Text())]
    return Group(*parts, Text(f"Validation: {validation.outcome}", style="bold"), facts(_notes(validation)))


def _notes(validation: Validation) -> Iterator[tuple[str, str]]:
    for remark in validation.remarks:
        yield "  Note", remark


def _predictions(validation: Validation) -> Grid:
    grid = _grid("TPOT in ms, by the profile and on servers", "at a\ntime", "arm", "predicted", "measured", "off by")
    for row in sorted(validation.predictions, key=lambda p: p.concurrency):
        grid.add_row(str(row.concurrency), row.arm.words, _ms(row.predicted), _ms(row.measured), _off(row))
    return grid


def _grid(title: str, *headings: str) -> Grid:
    """Narrow enough for the longest names and numbers on one line."""
    grid = Grid(box=SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for heading in headings:
        grid.add_column(heading, justify="left" if heading in ("arm", "is") else "right", no_wrap=True)
    return grid


def _off(row: Prediction) -> str:
    return "-" if row.error is None else f"{row.error:+.1%}"


HEAD = ("at a\ntime", "arm", "TPOT\nsaved", "tokens/s\nwon", "seen\nfrom", "is")


def compared_with(validation: Validation) -> tuple[ServedArm, ...]:
    """The arms that others were compared with: no speculation, then the fixed K."""
    return tuple(dict.fromkeys(row.against for row in validation.comparisons))


def comparison_rows(validation: Validation, against: ServedArm) -> Iterator[tuple[str, ...]]:
    """What each arm is against one of them, over all concurrencies first: an entry for each of `HEAD`."""
    for row in validation.against(against):
        yield _where(row), row.arm.words, _share(row.tpot), _share(row.throughput), _from(row), str(row.said)


def _comparisons(validation: Validation) -> Iterator[Grid]:
    for against in compared_with(validation):
        grid = _grid(f"Against {against.words}", *HEAD)
        for row in comparison_rows(validation, against):
            grid.add_row(*row)
        yield grid


def _where(row: ArmComparison) -> str:
    return "all" if row.concurrency is None else str(row.concurrency)


def _from(row: ArmComparison) -> str:
    """The smallest difference that these loads could show."""
    return "-" if row.detectable is None else f"{row.detectable:.1%}"


def _share(share: Interval) -> str:
    """With half its interval; a single start has none that says anything."""
    half = (share.high - share.low) / 2
    return f"{share.value:+.1%} ±{half:.1%}" if half < 10 else f"{share.value:+.1%}"


def _ms(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{interval.value * 1e3:.1f} [{interval.low * 1e3:.1f}, {interval.high * 1e3:.1f}]"
