"""Whether acceptance can be trusted: enough text, real text, and a drafter that belongs to the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dsd_tune.model.acceptance import by_prompt, dispersion, moves_with_k
from dsd_tune.model.sampled import Array
from dsd_tune.quality.listing import listed
from dsd_tune.records.measurement import Block, PromptCounts
from dsd_tune.records.warning import Code, QualityWarning

LITTLE_TEXT = 500
"""Fewer decode steps than this leave acceptance uncertain by more than a few percent."""

FEW_PROMPTS = 8
"""An interval clustered by fewer prompts is itself luck."""

ALIKE = 0.5
"""Prompts whose acceptance differs by this share of what chance alone would do are copies of one text."""

RANDOM_TEXT = 0.15
"""Random tokens were accepted at 12 % where prose was at 52 %."""

REPEATS_ITSELF = 0.95
LOOPING_SHARE = 0.1


def on_text(blocks: Sequence[Block], ks: tuple[int, ...], method: str) -> Iterator[QualityWarning]:
    """Every warning about acceptance."""
    drafting = [block for block in blocks if block.cell.k > 0]
    if not drafting:
        return
    yield from _impossible(drafting)
    drafted, accepted = by_prompt(drafting, ks[-1])
    yield from _amount(drafting, len(drafted))
    yield from _alike(drafted[:, 0], accepted[:, 0])
    yield from _rates(drafted, accepted)
    yield from _loops(drafted, accepted)
    yield from _moves(drafting, ks, method)


def _impossible(drafting: Sequence[Block]) -> Iterator[QualityWarning]:
    cells = {block.cell for block in drafting if any(_too_many(p, block.cell.k) for p in block.prompts)}
    if cells:
        yield QualityWarning(
            Code.IMPOSSIBLE_LENGTH,
            tuple(sorted(cells)),
            f"more drafts a step than K, and so an acceptance length outside 1 to K+1, at {listed(cells)}",
            "The engine did not run the K that it was told: dsd-tune check names the releases that do not.",
        )


def _too_many(counts: PromptCounts, k: int) -> bool:
    return any(counts.drafted[k:]) or counts.tokens > counts.steps * (k + 1)


def _amount(drafting: Sequence[Block], prompts: int) -> Iterator[QualityWarning]:
    steps = sum(counts.steps for block in drafting for counts in block.prompts)
    if steps < LITTLE_TEXT:
        yield QualityWarning(
            Code.LITTLE_TEXT, (), f"acceptance rests on {steps} decode steps", "Measure more --rounds or --starts."
        )
    if prompts < FEW_PROMPTS:
        yield QualityWarning(
            Code.PROMPTS_ALIKE,
            (),
            f"acceptance rests on {prompts} different prompts, and its interval on how those differ",
            "Give more prompts from your own traffic.",
        )


def _alike(drafted: Array, accepted: Array) -> Iterator[QualityWarning]:
    found = dispersion(drafted, accepted)
    if found is not None and found < ALIKE:
        yield QualityWarning(
            Code.PROMPTS_ALIKE,
            (),
            f"acceptance varies between prompts by {found:.0%} of what chance alone would do: they are too alike",
            "Give different prompts from your own traffic, without copies.",
        )


def _rates(drafted: Array, accepted: Array) -> Iterator[QualityWarning]:
    # Before a position's first draft nothing is known of it, and nan is neither 0 nor small.
    rates = np.where(drafted.sum(axis=0) > 0, accepted.sum(axis=0) / np.maximum(drafted.sum(axis=0), 1), np.nan)
    if np.any(rates == 0):
        yield QualityWarning(
            Code.NEVER_ACCEPTED,
            (),
            f"position {int(np.flatnonzero(rates == 0)[0]) + 1} was never accepted",
            "Does this drafter belong to this model? Check its name and its digest.",
        )
    elif rates[0] < RANDOM_TEXT:
        yield QualityWarning(
            Code.RANDOM_PROMPTS,
            (),
            f"only {rates[0]:.0%} of first drafts were accepted, as happens with prompts of random tokens",
            "Give prompts from your own traffic; if these are, the drafter does not know such text.",
        )


def _loops(drafted: Array, accepted: Array) -> Iterator[QualityWarning]:
    total, share = drafted.sum(), accepted.sum(axis=1) / np.maximum(drafted.sum(axis=1), 1)
    looping = drafted.sum(axis=1)[share >= REPEATS_ITSELF].sum() / max(total, 1)
    if drafted.shape[1] > 1 and looping > LOOPING_SHARE:
        yield QualityWarning(
            Code.REPETITION_LOOP,
            (),
            f"{looping:.0%} of the drafts belong to prompts where {REPEATS_ITSELF:.0%} and more were accepted: a text "
            "that repeats itself does that",
            "Look at what the model writes; do not force it on past its end, and measure at your own temperature.",
        )


def _moves(drafting: Sequence[Block], ks: tuple[int, ...], method: str) -> Iterator[QualityWarning]:
    moved = moves_with_k(drafting, ks, method)
    if moved:
        k, own, pooled = moved
        yield QualityWarning(
            Code.DEPENDS_ON_K,
            tuple(sorted({block.cell for block in drafting if block.cell.k == k})),
            f"at K={k} a step gives {own:.2f} tokens where drafts at all Ks foretell {pooled:.2f}: the drafter's "
            "first tokens depend on K, so each K is judged by its own blocks",
            "Nothing, if every K that counts has much text; a K that was not measured is not foretold.",
        )
