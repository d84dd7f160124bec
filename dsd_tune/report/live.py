"""A sweep while it runs: a live table on a terminal, plain lines elsewhere. Both show raw medians, not the verdict."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dsd_tune.model.undecided import Undecided
from dsd_tune.plan import Slot
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Block, Cell, Failure
from dsd_tune.report.grid import cell_grid, columns_of, fit_a_line
from dsd_tune.sweep import Budget


@dataclass(slots=True)
class Seen:
    """What has been measured under one condition: step times of each cell, decode steps and tokens of each K."""

    step_s: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    tokens: dict[int, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class Progress:
    """What has been measured so far; the sweep's observer counts here and a view reads it.

    Numbers are those of `condition`, which was measured last.
    """

    turns: int = 0
    done: int = 0
    failures: int = 0
    measured_here: int = 0
    began_at: float | None = None
    budget: Budget = field(default_factory=Budget)
    regret: float | None = None
    condition: Condition | None = None
    seen: dict[Condition | None, Seen] = field(default_factory=lambda: defaultdict(Seen))

    @property
    def here(self) -> Seen:
        """What was measured under the current condition."""
        return self.seen[self.condition]

    def add(self, sample: Block | Failure) -> None:
        """Count one turn."""
        self.done += 1
        self.measured_here += 1
        if isinstance(sample, Failure):
            self.failures += 1
            return
        self.condition = sample.condition
        self.here.step_s[sample.cell].append(statistics.median(sample.step_s))
        for prompt in sample.prompts:
            self.here.steps[sample.cell.k] += prompt.steps
            self.here.tokens[sample.cell.k] += prompt.tokens

    def left_s(self) -> float | None:
        """Seconds left at the pace of this process; None before the first block."""
        if not self.measured_here or self.began_at is None:
            return None
        return (time.monotonic() - self.began_at) / self.measured_here * (self.turns - self.done)

    def acceptance_length(self, k: int) -> float | None:
        """Tokens per step at K so far; None before the first step at it."""
        return self.here.tokens[k] / self.here.steps[k] if self.here.steps.get(k) else None

    def tpot_s(self, cell: Cell) -> float | None:
        """Time per output token of a cell so far, its step time where no text is counted; None while unmeasured."""
        length = self.acceptance_length(cell.k) if self.here.steps else 1.0
        step_s = self.here.step_s
        return statistics.median(step_s[cell]) / length if length and cell in step_s else None

    def headline(self) -> str:
        """Blocks done and time left until the plan is asked again, what the table may lose, and the budget used."""
        left = self.left_s()
        rest = "" if left is None else f", about {_clock(left)} left"
        failed = f", {self.failures} failed" if self.failures else ""
        regret = "" if self.regret is None else f", expected regret {self.regret:.1%}"
        limit = self.budget.limit_s
        spent = "" if limit is None else f", {_clock(self.budget.used_s)} of {_clock(limit)} used"
        return f"{self.done} of {self.turns} blocks{failed}{rest}{regret}{spent}"

    def shortfall(self, target_regret: float) -> str:
        """That the sweep ended before its target, and what goes on; empty where it did not, or there is no target."""
        if self.regret is None or self.regret <= target_regret:
            return ""
        more = "more --starts go" if self.budget.limit_s is None else "a new --budget or more --starts go"
        return (
            f"Expected regret is {self.regret:.1%}, above --target-regret of {target_regret:.1%}: {more} on from here."
        )


class View(Protocol):
    """Where progress is shown."""

    def refresh(self, note: str) -> None:
        """Show the current state; `note` says what is going on now."""
        ...


@dataclass(slots=True)
class Watcher:
    """Turns a sweep's events into progress on a view."""

    view: View
    progress: Progress

    def planned(self, turns: int, done: int) -> None:
        """A descent begins; what is on disk already counts as done."""
        self.progress.turns, self.progress.done = turns, done
        self.view.refresh("going on" if done else "planning")

    def judged(self, undecided: Mapping[Condition, Undecided]) -> None:
        """The plan was asked what is left open; of several conditions the worst counts."""
        self.progress.regret = max((open_.regret for open_ in undecided.values()), default=None)

    def starting(self, slot: Slot) -> None:
        """An engine start begins."""
        self.view.refresh(f"starting engine {slot.index + 1} ({slot.arm})")

    def measured(self, sample: Block | Failure) -> None:
        """A block or a failure is on disk."""
        if self.progress.began_at is None:
            self.progress.began_at = time.monotonic()
            self.progress.measured_here -= 1
        self.progress.add(sample)
        self.view.refresh(_line(sample, self.progress))

    def waiting(self, visits: int) -> None:
        """This worker is done before the others are."""
        self.view.refresh(f"waiting for other workers, which are at {visits} visit{'s' * (visits != 1)}")


@contextmanager
def watch(console: Console, budget: Budget | None = None) -> Iterator[Watcher]:
    """A watcher that draws a live table where the console is a terminal, and prints lines elsewhere."""
    progress = Progress(budget=budget or Budget())
    if not console.is_terminal:
        yield Watcher(_Lines(console, progress), progress)
        return
    # Drawn between blocks only: a clock that redraws during one would take time from the engine on a small machine.
    with Live(console=console, auto_refresh=False) as live:
        yield Watcher(_LiveTable(live, progress), progress)


_SECONDS_BETWEEN_LINES = 2.0


@dataclass(slots=True)
class _Lines:
    """One line every couple of seconds at most, so that a log stays readable."""

    console: Console
    progress: Progress
    last_at: float = 0.0

    def refresh(self, note: str) -> None:
        now = time.monotonic()
        last = self.progress.done == self.progress.turns
        rare = note.startswith(("starting", "waiting")) or " failed: " in note
        if rare or last or now - self.last_at >= _SECONDS_BETWEEN_LINES:
            self.last_at = now
            self.console.print(f"{self.progress.headline()}: {note}", soft_wrap=True, highlight=False, markup=False)


@dataclass(slots=True)
class _LiveTable:
    live: Live
    progress: Progress

    def refresh(self, note: str) -> None:
        progress = self.progress
        under = f" under {progress.condition}" if len(progress.seen.keys() - {None}) > 1 else ""
        title = Text(f"TPOT in ms (step time){under}; * is the row's best so far")
        rest = (_lengths(progress), Text(progress.headline()), Text(note))
        self.live.update(Group(title, _grid(progress), *rest), refresh=True)


def _grid(progress: Progress) -> RenderableType:
    """Step time and TPOT in ms of every cell so far, the best K of each batch size marked."""
    step_s = progress.here.step_s
    columns = columns_of(step_s)
    tpot_s = {cell: tpot for cell in step_s if (tpot := progress.tpot_s(cell))}

    between = " " if fit_a_line(columns) else "\n"
    return cell_grid(columns, tpot_s, lambda c: f"{between}({statistics.median(step_s[c]) * 1e3:.0f})")


def _lengths(progress: Progress) -> RenderableType:
    lengths = [(k, progress.acceptance_length(k)) for k in sorted(progress.here.steps) if k]
    return Text("Acceptance length: " + ", ".join(f"K={k} {al:.2f}" for k, al in lengths if al))


def _line(sample: Block | Failure, progress: Progress) -> str:
    if isinstance(sample, Failure):
        return f"{sample.cell} failed: {sample.reason}"
    step = statistics.median(sample.step_s) * 1e3
    tpot = progress.tpot_s(sample.cell)
    return f"{sample.cell}: step {step:.1f} ms" + (f", TPOT {tpot * 1e3:.1f} ms" if tpot else "")


def _clock(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s"
