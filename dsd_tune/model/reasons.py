"""A decision's reason and remarks, in sentences: what the numbers say, and where they say nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from dsd_tune.model.claims import Claims
from dsd_tune.model.surface import Surface
from dsd_tune.model.weights import Weights
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Verdict
from dsd_tune.records.table import Table

_SHOWN = 8
"""Stretches of batch sizes that a remark names before it only counts."""


def why(
    verdict: Verdict,
    quantity: str,
    table: Interval | None,
    fixed: Interval | None,
    over_fixed: Interval | None,
    needed: float,
) -> str:
    """The reason for a verdict, from the shares of `quantity` saved; None for what was not measured.

    `needed` is the share that a table must save over the fixed K.
    """
    more = f"; a table would save {_percent(over_fixed)} more" if over_fixed else ""
    if over_fixed and 0 < over_fixed.value < needed:
        more += f", and {needed:.0%} are needed"
    if fixed is None:
        tested = "speculation off was not tested"
        if verdict is Verdict.TABLE and over_fixed:
            return f"the table saves {_percent(over_fixed)} over the best fixed K; {tested}"
        return f"it is the best fixed K{more}; {tested}"
    best = max((gain for gain in (table, fixed) if gain), key=lambda gain: gain.value)
    match verdict:
        case Verdict.TABLE:
            return f"the table saves {_percent(table or best)} of {quantity} over no speculation"
        case Verdict.FIXED:
            return f"a fixed K saves {_percent(fixed)} of {quantity} over no speculation{more}"
        case Verdict.OFF:
            return f"the best speculative choice saves {_percent(best)} of {quantity}: nothing worth deploying"
        case Verdict.UNCLEAR:
            return (
                f"the best speculative choice saves {_percent(best)} of {quantity}, an interval that holds both a gain "
                "and none; more engine starts (--starts, or repeated rows of an import) narrow it"
            )


def remarks(surface: Surface, claims: Claims, table: Table | None, weights: Weights) -> Iterator[str]:
    """What the decision does not rest on, and what would change it."""
    first = surface.batch_sizes[0]
    if first > 1:
        yield f"batch sizes 1 to {first - 1} were not measured: they get what {first} gets"
    yield from _untried(surface)
    yield from _largest_k(surface)
    if table is None:
        return
    used = {(table.k_at(b), b) for b in surface.batch_sizes}
    for gap in claims.gaps:
        if (gap.k, gap.left) in used or (gap.k, gap.right) in used:
            yield gap.said
    usual = weights.usual
    if usual is not None:
        parts = [f"{weights.shares[r.first - 1 : r.last].sum():.0%} at K={r.k}" for r in table.ranges]
        yield f"of the weight lie {', '.join(parts)}, in the order of the table's ranges"
    if any(left.last == usual for left in table.ranges[:-1]):
        yield (
            f"K changes just above {usual}, where most of the traffic is: a prefill beside {usual} decodes counts as "
            "one more request"
        )


def on_graphs(table: Table, misses: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[str]:
    """What is known of steps that vLLM, left to itself, would run without the CUDA graph they were measured with."""
    if not misses:
        return
    lacking = f"at {len(misses)} of {table.max_num_seqs} batch sizes ({_stretches(misses)})"
    if sizes:
        yield (
            f"{lacking} vLLM's own capture sizes would leave this table without the CUDA graphs that were measured; "
            f"emit-config gives {len(sizes)} sizes that keep them"
        )
    else:
        yield (
            f"{lacking} this table runs without the CUDA graphs that were measured, and what that costs was not "
            "measured: compare it with the fixed K on a real server"
        )


def _stretches(batch_sizes: Sequence[int]) -> str:
    """Runs of neighbours as first-last, so many that a reader sees where they lie."""
    firsts = [b for b in batch_sizes if b - 1 not in batch_sizes]
    lasts = [b for b in batch_sizes if b + 1 not in batch_sizes]
    runs = [f"{a}-{b}" if a < b else f"{a}" for a, b in zip(firsts, lasts, strict=True)]
    return ", ".join(runs[:_SHOWN]) + (f" and {len(runs) - _SHOWN} more stretches" if len(runs) > _SHOWN else "")


def _untried(surface: Surface) -> Iterator[str]:
    by_size: dict[int, list[int]] = defaultdict(list)
    for batch_size, k in sorted(surface.untried):
        by_size[batch_size].append(k)
    for batch_size, ks in by_size.items():
        yield f"at B={batch_size} {', '.join(f'K={k}' for k in ks)} was not measured: no best K is claimed there"


def _largest_k(surface: Surface) -> Iterator[str]:
    tpot = surface.table_tpot().point
    whole = [b for b in surface.batch_sizes if b not in {size for size, _ in surface.untried}]
    rows = [surface.batch_sizes.index(b) for b in whole]
    best = [b for b, row in zip(whole, rows, strict=True) if np.nanargmin(tpot[row]) == len(surface.ks) - 1]
    if best and surface.ks[-1]:
        sizes = ", ".join(map(str, best))
        yield f"K={surface.ks[-1]} is the largest K tried and the best at B={sizes}: a larger one may be better"


def _percent(share: Interval) -> str:
    return f"{share.value:.1%} [{share.low:.1%}, {share.high:.1%}]"
