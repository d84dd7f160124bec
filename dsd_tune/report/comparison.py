"""Two profiles compared, for the terminal: 80 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from dsd_tune.records.comparison import Change, Comparison, PositionChange, Said
from dsd_tune.records.measurement import Arm
from dsd_tune.report.grid import facts

_COLUMNS = 8
"""As many cells as fit beside each other in 80 columns of text."""

_TIME = {Said.BETTER: "faster", Said.WORSE: "slower", Said.UNCLEAR: "?"}
_SHARE = {Said.BETTER: "higher", Said.WORSE: "lower"}

TITLE = """\
Step time, second against first, with half the interval; the intervals hold all
at once. ? is: cannot tell"""


def render(comparison: Comparison) -> RenderableType:
    """Fingerprint, cells, what else changed, and what may be said of it all."""
    learnt = facts(_facts(comparison))
    return Group(*_keys(comparison), Text(TITLE), *_grids(comparison), learnt, Text(), _verdict(comparison))


def _keys(comparison: Comparison) -> Iterator[RenderableType]:
    if not comparison.keys:
        yield Text("Both were measured in the same environment.\n")
        return
    if any(change.machine for change in comparison.keys):
        yield Text("These are two machines: what changed with them is in every number.", style="bold")
    yield facts((change.key, f"{change.before} -> {change.after}") for change in comparison.keys)
    yield Text()


def _grids(comparison: Comparison) -> Iterator[Grid]:
    columns = sorted({(c.cell.arm is not Arm.NO_SPEC, c.cell.arm, c.cell.k) for c in comparison.cells})
    for first in range(0, len(columns), _COLUMNS):
        yield _grid(comparison, [(arm, k) for _, arm, k in columns[first : first + _COLUMNS]])


def _grid(comparison: Comparison, columns: list[tuple[Arm, int]]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("B", justify="right")
    for arm, k in columns:
        grid.add_column({Arm.NO_SPEC: "no spec", Arm.DSD: f"K={k}", Arm.STATIC: f"fixed {k}"}[arm], justify="right")
    changes = {(c.cell.batch_size, c.cell.arm, c.cell.k): c.change for c in comparison.cells}
    for batch_size in sorted({c.cell.batch_size for c in comparison.cells}):
        row = [changes.get((batch_size, *column)) for column in columns]
        grid.add_row(str(batch_size), *("-" if change is None else _entry(change) for change in row))
    return grid


def _entry(change: Change) -> str:
    half = (change.ratio.high - change.ratio.low) / 2
    return f"{change.ratio.value - 1:+.0%}±{half:.0%}".replace("%±", "±") + f"\n{_word(change.said, _TIME)}"


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    if comparison.acceptance_lengths:
        yield "Acceptance length", _positions(comparison.acceptance_lengths, "K=")
    if comparison.acceptance:
        yield "Accepted by position", _positions(comparison.acceptance, "")
    if comparison.missing:
        yield "In one of them only", ", ".join(map(str, comparison.missing))


def _positions(changes: Iterable[PositionChange], label: str) -> str:
    return ", ".join(f"{label}{c.at} {_said(c.change, _SHARE)}" for c in changes)


def _said(change: Change, words: dict[Said, str]) -> str:
    low, high = change.ratio.low - 1, change.ratio.high - 1
    return f"{_word(change.said, words)} ({change.ratio.value - 1:+.1%} [{low:+.1%}, {high:+.1%}])"


def _word(said: Said, words: dict[Said, str]) -> str:
    return words.get(said, said.value)


def _verdict(comparison: Comparison) -> RenderableType:
    return Group(Text(f"Second against first: {comparison.said}", style="bold"), facts(_grounds(comparison)))


def _grounds(comparison: Comparison) -> Iterator[tuple[str, str]]:
    words = _TIME | {Said.UNCLEAR: Said.UNCLEAR.value}
    yield "  Why", f"{comparison.reason}."
    if comparison.tpot:
        yield "  TPOT as advised", _said(comparison.tpot, words)
    if comparison.no_spec:
        yield "  TPOT without speculation", _said(comparison.no_spec, words)
    if comparison.relative:
        yield "  The one over the other", _said(comparison.relative, words)
    yield "  Advice, first", comparison.advice_before
    yield "  Advice, second", _again(comparison)


def _again(comparison: Comparison) -> str:
    return "the same" if comparison.advice_after == comparison.advice_before else comparison.advice_after
