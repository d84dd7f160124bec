"""Findings about the table by itself: what vLLM refuses, and what it silently carries or clamps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dsd_tune.check import rules
from dsd_tune.check.reading import Lookup, Origin, Refusal, Rejected, Span, lax_int, read
from dsd_tune.records.finding import Finding, Rule
from dsd_tune.records.table import Range

_RULES: dict[Refusal, Rule] = {
    Refusal.NOT_A_LIST: rules.TABLE_SHAPE,
    Refusal.NOT_THREE_NUMBERS: rules.TABLE_SHAPE,
    Refusal.EMPTY: rules.TABLE_EMPTY,
    Refusal.NOT_POSITIVE: rules.RANGE_NOT_POSITIVE,
    Refusal.REVERSED: rules.RANGE_REVERSED,
    Refusal.NEGATIVE_K: rules.K_NEGATIVE,
    Refusal.OVERLAP: rules.RANGE_OVERLAP,
    Refusal.NOT_FROM_ONE: rules.TABLE_START,
}

_READABLE = 120
"""Characters of a wrong value that a reason quotes."""

_DICT_RANGE = re.compile(r"\s*(\d+)\s*-\s*(\d+)\s*")


def on_rejection(rejected: Rejected, raw: object, max_num_seqs: int) -> Finding:
    """Why vLLM refuses the table, and when the user would have learnt it."""
    refusal = rejected.refusal
    offenders = " and ".join(_shown(offender) for offender in rejected.offenders)
    if refusal is Refusal.EMPTY:
        return Finding(
            rules.TABLE_EMPTY,
            "The table is []. vLLM's configuration accepts it and takes dynamic speculation as on, so model runner V1 "
            "gives up FULL graphs and V2 fails at graph capture, while the scheduler ignores it.",
            "Leave the table out, or write its ranges.",
        )
    reason = f"vLLM refuses the table: {refusal}, and here is {offenders}. vLLM notices {refusal.when}."
    return Finding(_RULES[refusal], reason, _mend(rejected, raw, max_num_seqs))


_MENDS = {
    Refusal.NOT_THREE_NUMBERS: "Write [first, last, K]: first and last batch size, both included, and K. Entries with "
    "a context length are a proposal that no release accepts.",
    Refusal.NOT_POSITIVE: "Batch sizes count from 1.",
    Refusal.REVERSED: "Write the smaller batch size first.",
    Refusal.NEGATIVE_K: "Write 0 for no drafts.",
    Refusal.OVERLAP: "End the first of them before the second starts.",
    Refusal.NOT_FROM_ONE: "Add a range from 1, or start the first range there.",
}


def _mend(rejected: Rejected, raw: object, max_num_seqs: int) -> str:
    if rejected.refusal is not Refusal.NOT_A_LIST:
        return _MENDS[rejected.refusal]
    converted = _from_dict(raw, max_num_seqs)
    if converted is None:
        return "Write a list such as [[1,32,3],[33,256,1]]."
    return f'The form with "first-last" keys never came into a release. Write {compact(converted)}.'


def _from_dict(raw: object, max_num_seqs: int) -> list[list[int]] | None:
    """The list that means what an old `{"first-last": K}` table meant; None if it was none."""
    if not isinstance(raw, dict):
        return None
    entries = []
    for key, value in raw.items():
        match, k = _DICT_RANGE.fullmatch(str(key)), lax_int(value)
        if match is None or k is None:
            return None
        entries.append([int(match[1]), int(match[2]), k])
    largest = max((k for *_, k in entries), default=0)
    lookup = read(entries, max(largest, 1), max_num_seqs)
    return lookup.canonical().as_lists() if isinstance(lookup, Lookup) else None


def on_lookup(lookup: Lookup) -> Iterator[Finding]:
    """What an accepted table leaves to vLLM's leniency, and what it costs without need."""
    spans = lookup.spans()
    yield from _clamped(lookup, spans)
    yield from _carried(lookup, spans)
    yield from _beyond(lookup)
    if list(lookup.written) != list(lookup.entries):
        yield Finding(
            rules.TABLE_UNSORTED,
            "The ranges are not in ascending order. vLLM sorts them and accepts the table.",
            f"Write {_canonical(lookup)}.",
        )
    yield from _wasteful(lookup)
    yield from _zero_first(lookup.canonical().ranges)
    yield from _cliffs(lookup.canonical().ranges)


def _clamped(lookup: Lookup, spans: Sequence[Span]) -> Iterator[Finding]:
    over = [span for span in spans if span.is_clamped]
    if over:
        where = ", ".join(f"K {span.stated_k} at {sizes(span.first, span.last)}" for span in over)
        yield Finding(
            rules.K_ABOVE_MAX,
            f"The table asks for {where}, above num_speculative_tokens {lookup.k_max}. vLLM does not say so and uses "
            f"{lookup.k_max}; the lookup is {_canonical(lookup)}.",
            f"Raise num_speculative_tokens to {max(span.stated_k for span in over)}, or write the table that is used.",
        )


def _carried(lookup: Lookup, spans: Sequence[Span]) -> Iterator[Finding]:
    gaps = [span for span in spans if span.origin is Origin.GAP]
    if gaps:
        where = ", ".join(f"{sizes(span.first, span.last)} (K {span.k})" for span in gaps)
        yield Finding(
            rules.TABLE_GAP,
            f"No range covers {where}. vLLM carries the K of the range before.",
            f"Write what is meant there; what vLLM does now is {_canonical(lookup)}.",
        )
    if spans[-1].origin is Origin.TAIL:
        tail = spans[-1]
        yield Finding(
            rules.TABLE_TAIL,
            f"The last range ends before max_num_seqs {lookup.max_num_seqs}. vLLM carries K {tail.k} on to "
            f"{sizes(tail.first, tail.last)}, whether or not it was measured there.",
            f"Close the table at {lookup.max_num_seqs} with the K that is meant; now it is {_canonical(lookup)}.",
        )


def _beyond(lookup: Lookup) -> Iterator[Finding]:
    over = [entry for entry in lookup.entries if entry[1] > lookup.max_num_seqs]
    if over:
        yield Finding(
            rules.RANGE_BEYOND,
            f"{' and '.join(compact(list(entry)) for entry in over)} reaches beyond max_num_seqs "
            f"{lookup.max_num_seqs}. No batch is larger.",
            f"End the table at {lookup.max_num_seqs}, or raise --max-num-seqs if larger batches are meant.",
        )


def _wasteful(lookup: Lookup) -> Iterator[Finding]:
    table = lookup.canonical()
    if table.k_max == 0:
        yield Finding(
            rules.ALWAYS_ZERO,
            "K is 0 at every batch size, yet the drafter is loaded, holds KV cache and runs in every step.",
            "Remove --speculative-config.",
        )
        return
    if table.is_constant:
        yield Finding(
            rules.TABLE_CONSTANT,
            f"K is {table.k_max} at every batch size. As a table it costs the padding of new requests, and on model "
            "runner V1 the FULL graphs.",
            f"Remove the table and set num_speculative_tokens to {table.k_max}.",
        )
    if table.k_max < lookup.k_max:
        yield Finding(
            rules.K_MAX_UNUSED,
            f"num_speculative_tokens is {lookup.k_max}, but no batch size gets more than {table.k_max}. KV cache, "
            "draft slots and buffers are sized for the larger.",
            f"Set num_speculative_tokens to {table.k_max}.",
        )


def _zero_first(ranges: Sequence[Range]) -> Iterator[Finding]:
    first = ranges[0]
    if first.k == 0 and len(ranges) > 1:
        yield Finding(
            rules.ZERO_FIRST,
            f"K is 0 at {sizes(first.first, first.last)} and above 0 only for larger batches. That may be right, as "
            "with some mixtures of experts, or the ranges are the wrong way round.",
            f"Compare it with no speculation at {first.last} requests at a time or fewer: `dsd-tune validate`.",
        )


def _cliffs(ranges: Sequence[Range]) -> Iterator[Finding]:
    steps = [(a, b) for a, b in pairwise(ranges) if min(a.k, b.k) == 0 and max(a.k, b.k) > 1]
    if steps:
        where = ", ".join(f"{a.k} to {b.k} at {b.first}" for a, b in steps)
        yield Finding(
            rules.K_CLIFF,
            f"K jumps from {where}. The batch size counts prefills too, so a load near the boundary flips in every "
            "step between drafting and not.",
            "Put a range with K 1 between, or keep the boundary away from the usual load.",
        )


def sizes(first: int, last: int) -> str:
    """Batch sizes in words."""
    return f"batch size {first}" if first == last else f"batch sizes {first}-{last}"


def compact(value: object) -> str:
    """JSON without spaces, as it is pasted."""
    return json.dumps(value, separators=(",", ":"), default=str)


def _shown(value: object) -> str:
    """Something wrong, cut where nobody would read on."""
    text = compact(value)
    return text if len(text) <= _READABLE else f"{text[:_READABLE]}..."


def _canonical(lookup: Lookup) -> str:
    return compact(lookup.canonical().as_lists())
