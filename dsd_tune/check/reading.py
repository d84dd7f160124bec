"""vLLM's reading of a raw table, leniency included: a rejection, or the K it looks up at each batch size.

Equal to `vllm/v1/spec_decode/dynamic/utils.py`, one and the same file in 0.24 to 0.33, and to the type check before.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from dsd_tune.records.table import Table

Entry = tuple[int, int, int]
"""First batch size, last batch size, K."""

_NUMBER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*(\.0+)?")
_INT64 = 2**63


class Refusal(StrEnum):
    """Why vLLM refuses a table, in the order in which it looks."""

    NOT_A_LIST = "the table must be a list of [first, last, K]"
    NOT_THREE_NUMBERS = "each range must be three whole numbers, [first, last, K]"
    EMPTY = "the table must not be empty"
    NOT_POSITIVE = "batch sizes must be positive"
    REVERSED = "a range must not end before it starts"
    NEGATIVE_K = "K must be 0 or more"
    OVERLAP = "ranges must not overlap"
    NOT_FROM_ONE = "the first range must start at 1"

    @property
    def when(self) -> str:
        """When vLLM notices."""
        if self in (Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS):
            return "when it parses its configuration"
        return "at engine start, after the weights are loaded"


@dataclass(frozen=True, slots=True)
class Rejected:
    """vLLM would not take it: the rule, and the ranges at fault as they were written."""

    refusal: Refusal
    offenders: tuple[object, ...] = ()


class Origin(StrEnum):
    """Where the K of a batch size comes from."""

    STATED = "stated"
    GAP = "carried over a gap"
    TAIL = "carried past the last range"
    DROPPED = "fixed: vLLM drops the table"
    FIXED = "fixed: there is no table"


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring batch sizes with one K of one origin. `stated_k` is K before vLLM clamps it."""

    first: int
    last: int
    k: int
    stated_k: int
    origin: Origin

    @property
    def is_clamped(self) -> bool:
        """Whether vLLM silently uses a smaller K than the table states."""
        return self.k != self.stated_k


@dataclass(frozen=True, slots=True)
class Lookup:
    """An accepted table under one K_max and max_num_seqs. `written` are its ranges in the order of the file."""

    written: tuple[Entry, ...]
    k_max: int
    max_num_seqs: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The ranges in ascending order."""
        return tuple(sorted(self.written))

    def dense(self) -> tuple[int, ...]:
        """K for each batch size from 1 to `max_num_seqs`, clamped to `k_max`."""
        return tuple(k for span in self.spans() for k in (span.k,) * (span.last - span.first + 1))

    def spans(self) -> tuple[Span, ...]:
        """The whole lookup in ascending batch sizes, without gaps."""
        entries = self.entries
        firsts = [first for first, _, _ in entries]

        def source(batch_size: int) -> tuple[int, Origin]:
            at = bisect_right(firsts, batch_size) - 1
            if batch_size <= entries[at][1]:
                return at, Origin.STATED
            return at, Origin.GAP if at + 1 < len(entries) else Origin.TAIL

        spans = []
        for (at, origin), group in groupby(range(1, self.max_num_seqs + 1), source):
            sizes = list(group)
            stated = entries[at][2]
            spans.append(Span(sizes[0], sizes[-1], min(stated, self.k_max), stated, origin))
        return tuple(spans)

    def canonical(self) -> Table:
        """The table that says the same and needs no leniency."""
        return Table.from_dense(self.dense())


def read(raw: object, k_max: int, max_num_seqs: int) -> Lookup | Rejected:
    """What vLLM makes of the value of `num_speculative_tokens_per_batch_size`, as JSON gives it.

    None is no table at all and not for this function. `k_max` and `max_num_seqs` must be positive.
    """
    if not isinstance(raw, list):
        return Rejected(Refusal.NOT_A_LIST, (raw,))
    entries: list[Entry] = []
    for written in raw:
        entry = _entry(written)
        if entry is None:
            return Rejected(Refusal.NOT_THREE_NUMBERS, (written,))
        entries.append(entry)
    return _rejection(entries) or Lookup(tuple(entries), k_max, max_num_seqs)


def lax_int(value: object) -> int | None:
    """A whole number as vLLM's configuration accepts it (pydantic, lax): 3, true, 3.0, "3", " 3.0 "; else None."""
    match value:
        case int():  # a bool is an int, for both of us
            return int(value)
        case float() if value.is_integer() and -_INT64 <= value < _INT64:
            return int(value)
        case str() if _NUMBER.fullmatch(value.strip()):
            digits = value.strip().partition(".")[0]
            # Longer ones Python itself refuses to convert.
            return int(digits) if len(digits) <= 4300 else None
        case _:
            return None


def _entry(written: object) -> Entry | None:
    if not isinstance(written, list | tuple) or len(written) != 3:
        return None
    first, last, k = map(lax_int, written)
    return None if first is None or last is None or k is None else (first, last, k)


def _rejection(entries: list[Entry]) -> Rejected | None:
    if not entries:
        return Rejected(Refusal.EMPTY)
    for entry in entries:
        refusal = _refusal(*entry)
        if refusal is not None:
            return Rejected(refusal, (list(entry),))
    ascending = sorted(entries, key=lambda entry: entry[0])
    for left, right in pairwise(ascending):
        if right[0] <= left[1]:
            return Rejected(Refusal.OVERLAP, (list(left), list(right)))
    if ascending[0][0] != 1:
        return Rejected(Refusal.NOT_FROM_ONE, (list(ascending[0]),))
    return None


def _refusal(first: int, last: int, k: int) -> Refusal | None:
    if first <= 0 or last <= 0:
        return Refusal.NOT_POSITIVE
    if first > last:
        return Refusal.REVERSED
    return Refusal.NEGATIVE_K if k < 0 else None
