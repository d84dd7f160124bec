"""Each choice of K at every batch size, read off a surface: what it drafts, and how its steps go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.claims import claim
from dsd_tune.model.luck import luck
from dsd_tune.model.queueing import Pace
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.records.profile import Decision, Verdict
from dsd_tune.records.table import Table

NO_SPECULATION = "no speculation"
TABLE = "table"


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of K: `ks[b - 1]` at batch size b, with its log TPOT and acceptance length, shape (batch sizes,)."""

    name: str
    ks: tuple[int, ...]
    log_tpot: Sampled
    log_tokens: Array

    def pace(self, prefill_s: float, draw: int | None = None) -> Pace:
        """How steps go by the estimates, or by one draw of them."""
        log_tpot = self.log_tpot.point if draw is None else self.log_tpot.draws[draw]
        tokens = np.exp(self.log_tokens).tolist()
        return Pace(
            step_s=tuple(np.exp(log_tpot + self.log_tokens).tolist()),
            tokens=tuple(tokens),
            luck=tuple(luck(length, k) for length, k in zip(tokens, self.ks, strict=True)),
            ks=self.ks,
            prefill_s=prefill_s,
        )


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be forecast, and of what cannot why not."""

    known: tuple[Choice, ...]
    remarks: tuple[str, ...]

    def named(self, name: str) -> Choice | None:
        """The one of that name."""
        return next((choice for choice in self.known if choice.name == name), None)


def choices(surface: Surface, max_num_seqs: int, table: Table | None, capture_limit: int | None = None) -> Choices:
    """No speculation, each fixed K and a table, up to `max_num_seqs` requests at once.

    Between measured batch sizes TPOT is read off as where a decision is made. A choice that needs a cell which was
    not measured is left out, aloud.

    Raises:
        UsageError: batch sizes up to `max_num_seqs` were not measured, or none of the choices is known.
    """
    if max_num_seqs > surface.batch_sizes[-1]:
        raise UsageError(
            f"batch sizes end at {surface.batch_sizes[-1]}, and nothing is known above.",
            f"Give --max-num-seqs {surface.batch_sizes[-1]} or less, or measure up to {max_num_seqs}.",
        )
    reading = _Reading(surface, max_num_seqs, capture_limit)
    found = [reading.off(), *(reading.fixed(k) for k in surface.ks if k > 0)]
    if table:
        found.append(reading.by_table(table))
    known = tuple(choice for choice in found if np.isfinite(choice.log_tpot.point).all())
    if not known:
        raise UsageError(
            f"batch sizes from 1 to {max_num_seqs} are not all measured for any choice of K.",
            "Traffic passes through all of them; measure from 1 on.",
        )
    return Choices(known, (*(said for choice in found if (said := _unknown(choice))), *reading.gaps))


def advised_name(decision: Decision) -> str:
    """Which choice a decision is for; no speculation where it cannot tell."""
    names = {Verdict.TABLE: TABLE, Verdict.FIXED: f"K={decision.fixed_k}"}
    return names.get(decision.verdict, NO_SPECULATION)


def _unknown(choice: Choice) -> str | None:
    """Where a choice was not measured, in words."""
    sizes = np.flatnonzero(~np.isfinite(choice.log_tpot.point)) + 1
    return f"{choice.name} is left out: not measured at B={sizes[0]} to {sizes[-1]}" if sizes.size else None


def verified_tokens_per_s(surface: Surface) -> float:
    """The most tokens in flight that a step was seen to go through in a second; 0 where no step time is known."""
    known = np.isfinite(surface.log_tokens.point) & ((surface.log_tokens.point > 0) | (np.asarray(surface.ks) == 0))
    in_flight = np.log(np.outer(surface.batch_sizes, np.asarray(surface.ks) + 1.0))
    return float(np.exp(np.max(np.where(known, np.nan_to_num(in_flight - surface.dsd.point, nan=-np.inf), -np.inf))))


class _Reading:
    """A surface read off at every batch size, as in a decision."""

    def __init__(self, surface: Surface, max_num_seqs: int, capture_limit: int | None) -> None:
        self._surface, self._size = surface, max_num_seqs
        top = surface.batch_sizes[-1]
        claims = claim(surface, top, capture_limit)
        self._line = claims.log_line
        self.gaps = tuple(gap.said for gap in claims.gaps if gap.left < max_num_seqs)

    def off(self) -> Choice:
        """No speculation."""
        return self._choice(NO_SPECULATION, [0] * self._size, self._spread(self._surface.no_spec))

    def fixed(self, k: int) -> Choice:
        """One K, in its own engine where that was measured."""
        own = k in self._surface.static
        column = self._line[:, self._surface.ks.index(k)]
        line = self._spread(self._surface.fixed_tpot(k)) if own else column
        return self._choice(f"K={k}", [k] * self._size, line)

    def by_table(self, table: Table) -> Choice:
        """A table's K at each batch size; it may end above."""
        ks = list(table.dense())[: self._size]
        columns = [self._surface.ks.index(k) for k in ks]
        return self._choice(TABLE, ks, self._line[np.arange(len(ks)), columns])

    def _spread(self, log_values: Sampled) -> Sampled:
        return spread(log_values, self._surface.batch_sizes, self._surface.batch_sizes[-1])

    def _choice(self, name: str, ks: list[int], line: Sampled) -> Choice:
        columns = [self._surface.ks.index(k) for k in ks]
        return Choice(name, tuple(ks), line[: self._size], self._surface.log_tokens.point[columns])
