"""A profile for the terminal: grid, what was learnt, and the verdict. 80 columns, no colour needed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import (
    Boundary,
    CellEstimate,
    Comparison,
    CriticalSize,
    Crossover,
    Decision,
    HeldOut,
    Profile,
    Rival,
    Verdict,
)
from dsd_tune.records.table import Table

COLUMNS_A_LINE = 7
"""With more columns the half interval goes under the gain, so that 80 columns of text hold them."""

TITLE = """\
TPOT in ms, * is the best of its batch size B; below it the gain over no
speculation ±half its 95 % interval"""


COST_TITLE = """\
Step time in ms, * is the shortest of its batch size B; below it the acceptance
length from which a K pays ±half its 95 % interval"""


def render(profile: Profile) -> RenderableType:
    """Everything `fit` prints: grid, what was learnt, verdict and warnings."""
    title = Text(TITLE if profile.acceptance_known else COST_TITLE)
    return Group(title, tpot_grid(profile), Text(), facts(findings(profile)), Text(), verdict(profile))


def least_width(profile: Profile, console: Console) -> int:
    """Columns of text under which numbers of the grid would be cut off."""
    # A terminal bounds what is measured for it.
    return Measurement.get(console, console.options.update(max_width=1000), tpot_grid(profile)).maximum


def facts(rows: Iterable[tuple[str, str]]) -> Grid:
    """Labels and texts in two columns, so that long texts wrap beside their label."""
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(label, Text(text))
    return grid


def tpot_grid(profile: Profile) -> Grid:
    """TPOT in ms by batch size and K, with the gain over `no_spec` in percent; `*` marks the best of a row."""
    cells = {e.cell: e for e in profile.cells}
    columns = columns_of([*cells, Cell(Arm.NO_SPEC, 1, 0)])
    between = "" if fit_a_line(columns) else "\n"
    tpot_s = {cell: estimate.tpot_s.value for cell, estimate in cells.items()}
    second = _gain if profile.acceptance_known else _break_even
    return cell_grid(columns, tpot_s, lambda cell: second(cells[cell], between))


def columns_of(cells: Iterable[Cell]) -> list[tuple[Arm, int]]:
    """The arms and Ks among cells: no speculation first, then by arm and K."""
    return sorted({(cell.arm, cell.k) for cell in cells}, key=lambda column: (column[0] is not Arm.NO_SPEC, column))


def fit_a_line(columns: Sequence[tuple[Arm, int]]) -> bool:
    """Whether two numbers a cell fit beside each other in 80 columns of text."""
    return len(columns) <= COLUMNS_A_LINE


def cell_grid(columns: Sequence[tuple[Arm, int]], tpot_s: Mapping[Cell, float], second: Callable[[Cell], str]) -> Grid:
    """TPOT in ms by batch size and column, then what `second` writes; `*` marks a row's best, `-` a missing cell."""
    grid = Grid(box=SIMPLE_HEAD, padding=(0, int(fit_a_line(columns)), 0, 0))
    grid.add_column("B", justify="right")
    for arm, k in columns:
        grid.add_column(heading(arm, k), justify="right")
    for batch_size in sorted({cell.batch_size for cell in tpot_s}):
        row = [Cell(arm, batch_size, k) for arm, k in columns]
        best = min((tpot_s[cell] for cell in row if cell in tpot_s), default=None)
        grid.add_row(str(batch_size), *(_entry(tpot_s[c], best) + second(c) if c in tpot_s else "-" for c in row))
    return grid


def _entry(tpot_s: float, best: float | None) -> str:
    return f"{'*' if tpot_s == best else ''}{_three_digits(tpot_s * 1e3)}"


def heading(arm: Arm, k: int) -> str:
    """What a column of cells is called."""
    return {Arm.NO_SPEC: "no spec", Arm.DSD: f"K={k}", Arm.STATIC: f"fixed {k}"}[arm]


def _gain(estimate: CellEstimate, between: str) -> str:
    gain = estimate.gain
    if estimate.cell.arm is Arm.NO_SPEC or gain is None:
        return ""
    return f"\n{gain.value * 100:+.0f}{between}±{(gain.high - gain.low) / 2:.0%}"


def _break_even(estimate: CellEstimate, between: str) -> str:
    tokens = estimate.break_even
    return f"\n{tokens.value:.2f}{between}±{(tokens.high - tokens.low) / 2:.2f}" if tokens else ""


def _three_digits(ms: float) -> str:
    """Milliseconds of a fast machine or a slow one, in the same width."""
    return f"{ms:.{1 if ms < 99.95 else 0}f}"


def findings(profile: Profile) -> Iterator[tuple[str, str]]:
    """Label and text of each thing learnt besides the grid."""
    if lengths := [f"K={a.k} {plain(a.tokens)}" for a in profile.acceptance_lengths if a.k]:
        yield "Acceptance stated" if profile.cost_only else "Acceptance length", ", ".join(lengths)
    if rates := [f"{a.position}: {percent(a.rate)}" for a in profile.acceptance]:
        yield "Accepted by position", ", ".join(rates)
    if profile.k0_tax:
        yield "Tax of K=0", _tax(profile)
    if profile.critical:
        yield "Critical BS*K", _critical(profile.critical) + _by_datasheet(profile)
    if profile.held_out:
        yield "Cells foretold", _foretold(profile.held_out)
    if profile.crossovers:
        yield "Stops paying", "; ".join(_crossover(c) for c in profile.crossovers)
    if scatter := _scatter(profile.cells):
        yield "Scatter of cells", scatter
    yield "Noise", _noise(profile)
    if profile.variance.limit:
        limit = profile.variance.limit
        yield "Closest call", f"{limit.comparison}; what limits it is {limit.source}"


BANDS = ((0.05, "excellent"), (0.1, "good"), (0.2, "fair"), (math.inf, "poor"))
"""What a coefficient of variation below each limit is called."""


def _scatter(cells: Sequence[CellEstimate]) -> str:
    """How many cells lie in each band of the coefficient of variation of their blocks, and the worst of them."""
    known = {e.cell: e.cv for e in cells if e.cv is not None}
    if not known:
        return ""
    bands = Counter(next(word for limit, word in BANDS if cv < limit) for cv in known.values())
    worst = max(known, key=known.__getitem__)
    counts = ", ".join(f"{bands[word]} {word}" for _, word in BANDS if bands[word])
    return f"{counts}; the most at {worst}, {known[worst]:.1%}"


def _foretold(held_out: HeldOut) -> str:
    if held_out.median_error is None or held_out.high_error is None:
        return "none from its neighbours: only measured cells count"
    errors = f"median error {held_out.median_error:.1%}, 90th percentile {held_out.high_error:.1%}"
    return f"{held_out.cells} of {held_out.cells + len(held_out.flagged)} cells follow from their neighbours; {errors}"


def _noise(profile: Profile) -> str:
    noise = profile.variance
    if profile.request is None:
        return f"{noise.between_starts:.1%} is assumed between engines, {noise.between_blocks:.1%} for each number"
    return (
        f"{noise.between_starts:.1%} between engine starts, {noise.drift:.1%} drift of the machine between visits, "
        f"{noise.between_blocks:.1%} between blocks of a visit{_trend(noise.trend)}"
    )


def _trend(trend: Interval | None) -> str:
    return (
        f"; {trend.value:+.1%} [{trend.low:+.1%}, {trend.high:+.1%}] from the first block to the last" if trend else ""
    )


def _tax(profile: Profile) -> str:
    taxes = ", ".join(
        f"B={t.batch_size} {t.share.value:+.1%} [{t.share.low:+.1%}, {t.share.high:+.1%}] ({t.share.detectable:.1%})"
        for t in profile.k0_tax
    )
    return f"over no speculation, in the table's engine (detectable): {taxes}"


def _critical(critical: CriticalSize) -> str:
    size = critical.tokens
    return critical.remark if size is None else f"{plain(size, 0)} tokens in flight; {critical.remark}"


def _by_datasheet(profile: Profile) -> str:
    if profile.roofline_tokens is None:
        return ""
    device = profile.environment.device_name if profile.environment else profile.fact("gpu")
    return f"; the datasheet of {device} puts it at {profile.roofline_tokens:.0f} (16-bit weights)"


def _crossover(crossover: Crossover) -> str:
    k, at = crossover.k, crossover.at
    if at is None:
        return f"K={k} pays at every size measured" if crossover.pays else f"K={k} never pays"
    direction = "" if crossover.pays else " (it pays above)"
    return f"K={k} at B={at.value:.0f} [{at.low:.0f}, {at.high:.0f}]{direction}"


def verdict(profile: Profile) -> RenderableType:
    """The decision, the choices it was weighed against, and where it loses."""
    rows = [*grounds(profile), *(("Note", note) for note in profile.decision.remarks)]
    rows += [("Warning", str(warning)) for warning in profile.warnings]
    return Group(
        Text(f"Verdict: {headline(profile)}", style="bold"), facts((f"  {label}", text) for label, text in rows)
    )


def grounds(profile: Profile) -> Iterator[tuple[str, str]]:
    """Label and text of what the decision rests on, and of where it loses."""
    decision = profile.decision
    yield "Why", f"{decision.reason}."
    yield from _choices(decision) if decision.fixed_k else ()


def _choices(decision: Decision) -> Iterator[tuple[str, str]]:
    """The table and the fixed K, with what they are weighed by."""
    if decision.table:
        yield "Table", f"{_lists(decision.table)}{_saves(decision.table_gain)}"
    if decision.table_over_fixed:
        yield "Over fixed", _over_fixed(decision.table_over_fixed, decision.confirmed_over_fixed)
    worst = f"at its worst batch size it loses {decision.fixed_worst_loss:.1%}"
    yield "Fixed K", f"{decision.fixed_k}{_saves(decision.fixed_gain)}; {worst}"
    yield "Objective", decision.objective
    yield "Weights", decision.weights
    for boundary in decision.boundaries:
        yield f"After B={boundary.after}", _boundary(boundary)
    if decision.rivals:
        yield "Rivals", _rivals(decision.rivals)
    for stretch in decision.losing:
        yield f"B={stretch.first} to {stretch.last}", f"no speculation would be {percent(stretch.loss)} faster there"


def _saves(gain: Comparison | None) -> str:
    return f" saves {percent(gain)}{_detectable(gain)}" if gain else ""


def _over_fixed(saved: Comparison, confirmed: float | None) -> str:
    apart = "" if confirmed is None else f"; {confirmed:.1%} if judged on other noise than chosen by"
    return f"the table saves {percent(saved)} over the fixed K{_detectable(saved)}{apart}"


def _boundary(boundary: Boundary) -> str:
    tied = f"tied from B={boundary.low} to {boundary.high}" if boundary.low < boundary.high else "no ties"
    then = (
        f"then saves {percent(boundary.margin)}" if boundary.margin else f"K={boundary.left_k} was not measured there"
    )
    left, right = boundary.left_measured, boundary.right_measured
    between = f"; not measured between {left} and {right}" if right - left > 1 else ""
    return f"K={boundary.left_k} to K={boundary.right_k} ({tied}); {then}{between}"


def _rivals(rivals: Sequence[Rival]) -> str:
    """Every K that another sweep might choose, with the batch sizes where."""
    spans = defaultdict(list)
    for rival in rivals:
        spans[rival.k].append(str(rival.first) if rival.first == rival.last else f"{rival.first} to {rival.last}")
    where = "; ".join(f"K={k} at B={', '.join(each)}" for k, each in spans.items())
    return f"{where}: not surely worse than the table's K"


def _lists(table: Table) -> str:
    return str(table.as_lists()).replace(" ", "")


def headline(profile: Profile) -> str:
    """The verdict with the table or K that it names."""
    return named(profile.decision)


def named(decision: Decision) -> str:
    """A verdict with the table or K that it names."""
    if decision.verdict is Verdict.TABLE and decision.table:
        return f"{decision.verdict}: {_lists(decision.table)}"
    return f"{decision.verdict}: {decision.fixed_k}" if decision.verdict is Verdict.FIXED else str(decision.verdict)


def percent(share: Interval) -> str:
    """A share with its interval."""
    return f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"


def _detectable(found: Comparison) -> str:
    """The smallest difference that this run would have told from none."""
    return f" ({found.detectable:.1%} detectable)"


def plain(interval: Interval, digits: int = 2) -> str:
    """A number with its interval."""
    return f"{interval.value:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
