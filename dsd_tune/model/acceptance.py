"""Acceptance from token counts: pooled over batch sizes, per position given that it was drafted, clustered by prompt.

Tokens of one prompt are alike, so the prompt is what is resampled, never the single draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.records.measurement import Block

BLOCK_DRAFTERS = frozenset({"dflash", "dspark", "pard", "p_eagle"})
"""Methods that propose all K tokens at once, so that the first ones may depend on K."""

VARIABLE_DRAFTERS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods for which K is a cap: steps without a draft exist, and rates given a draft overstate the gain."""


def positions(blocks: Iterable[Block], k_max: int, rng: np.random.Generator) -> Sampled:
    """Acceptance rate at positions 1 to `k_max`, shape (k_max,), pooled over every K that drafted the position.

    A rate is the share of drafted tokens at that position accepted with all before them, which is vLLM's
    unconditional per-position rate with the right denominator. nan where nothing was drafted.
    """
    drafted, accepted = _by_prompt(blocks, k_max)
    return _ratio(accepted, drafted, rng)


def tokens_per_step(blocks: Iterable[Block], ks: tuple[int, ...], method: str, rng: np.random.Generator) -> Sampled:
    """Acceptance length at each K of `ks`, which starts with 0, shape (len(ks),); K=0 gives exactly 1.

    For drafters whose first tokens do not depend on K: 1 + sum of the pooled position rates (Leviathan et al.
    2023, with a rate for each position). For the others: tokens over decode steps, each K from its own blocks.
    """
    drafting = [b for b in blocks if b.cell.k > 0]
    if method in BLOCK_DRAFTERS | VARIABLE_DRAFTERS:
        lengths = _tokens_over_steps(drafting, ks[1:], rng)
    else:
        rates = positions(drafting, ks[-1], rng)
        lengths = rates.map(lambda a: 1 + np.cumsum(a, axis=-1))[[k - 1 for k in ks[1:]]]
    ones = np.ones((DRAWS, 1))
    return Sampled(np.concatenate([[1.0], lengths.point]), np.concatenate([ones, lengths.draws], axis=1))


def _by_prompt(blocks: Iterable[Block], k_max: int) -> tuple[Array, Array]:
    """Drafted and accepted counts, each of shape (prompts, k_max)."""
    counts: dict[str, Array] = defaultdict(lambda: np.zeros((2, k_max)))
    for block in blocks:
        for prompt in block.prompts:
            width = len(prompt.drafted)
            counts[prompt.prompt][:, :width] += (prompt.drafted, prompt.accepted)
    stacked = np.array(list(counts.values())).reshape(-1, 2, k_max)
    return stacked[:, 0], stacked[:, 1]


def _tokens_over_steps(blocks: list[Block], ks: tuple[int, ...], rng: np.random.Generator) -> Sampled:
    counts: dict[str, Array] = defaultdict(lambda: np.zeros((2, len(ks))))
    for block in blocks:
        for prompt in block.prompts:
            counts[prompt.prompt][:, ks.index(block.cell.k)] += (prompt.steps, prompt.tokens)
    stacked = np.array(list(counts.values())).reshape(-1, 2, len(ks))
    return _ratio(stacked[:, 1], stacked[:, 0], rng)


def _ratio(numerator: Array, denominator: Array, rng: np.random.Generator) -> Sampled:
    """Ratio of sums with a Bayesian bootstrap over rows (Rubin 1981).

    No row ever weighs nothing, so a position that few prompts drafted has a finite ratio in every draw.
    """
    rows = len(numerator)
    if rows == 0:
        empty = np.full(numerator.shape[1:], np.nan)
        return Sampled(empty, np.broadcast_to(empty, (DRAWS, *empty.shape)))
    weights = rng.dirichlet(np.ones(rows), DRAWS)
    with np.errstate(invalid="ignore"):
        return Sampled(numerator.sum(0) / denominator.sum(0), (weights @ numerator) / (weights @ denominator))
