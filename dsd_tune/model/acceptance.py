"""Acceptance from token counts: pooled over batch sizes, per position given that it was drafted, clustered by prompt.

Tokens of one prompt are alike, so the prompt is what is resampled, never the single draft.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from dsd_tune.model.sampled import DRAWS, Array, Sampled
from dsd_tune.records.drafter import JUDGED_BY_K
from dsd_tune.records.measurement import Block

TRANSFERS = 0.02
"""How far, as a log ratio, tokens a step at one K may lie from what drafts at all Ks foretell."""

_ENOUGH_DRAFTS = 20
_ENOUGH_PROMPTS = 10


def stated_tokens_per_step(rates: Sequence[float], ks: tuple[int, ...]) -> Sampled:
    """Acceptance length at each K of `ks`, shape (len(ks),), from shares of steps that accept each position.

    It is exact, having been stated. Without any rates it is 1, as if no draft were accepted.
    """
    lengths = np.array([1 + sum(rates[:k]) for k in ks])
    return Sampled(lengths, np.broadcast_to(lengths, (DRAWS, len(ks))))


def positions(blocks: Iterable[Block], k_max: int, rng: np.random.Generator) -> Sampled:
    """Acceptance rate at positions 1 to `k_max`, shape (k_max,), pooled over every K that drafted the position.

    A rate is the share of drafted tokens at that position accepted with all before them, which is vLLM's
    unconditional per-position rate with the right denominator. nan where nothing was drafted.
    """
    drafted, accepted = by_prompt(blocks, k_max)
    return _ratio(accepted, drafted, rng)


def tokens_per_step(blocks: Iterable[Block], ks: tuple[int, ...], method: str, rng: np.random.Generator) -> Sampled:
    """Acceptance length at each K of `ks`, which starts with 0, shape (len(ks),); K=0 gives exactly 1.

    For drafters whose first tokens do not depend on K: 1 + sum of the pooled position rates (Leviathan et al.
    2023, with a rate for each position), so that one pass at the largest K would do. For the others, and where the
    numbers contradict that, tokens over decode steps, each K from its own blocks.
    """
    drafting = [b for b in blocks if b.cell.k > 0]
    if method in JUDGED_BY_K or moves_with_k(drafting, ks, method):
        lengths = _tokens_over_steps(drafting, ks[1:], rng)
    else:
        lengths = _pooled(drafting, ks, rng)
    ones = np.ones((DRAWS, 1))
    return Sampled(np.concatenate([[1.0], lengths.point]), np.concatenate([ones, lengths.draws], axis=1))


def moves_with_k(drafting: Iterable[Block], ks: tuple[int, ...], method: str) -> tuple[int, float, float] | None:
    """The K whose own drafts give acceptance lengths the furthest from those of all Ks, and both lengths.

    None where they agree, within `TRANSFERS` or within what resampling prompts explains, from few prompts, and for
    methods that are judged K by K anyway.
    """
    if method in JUDGED_BY_K:
        return None
    own, pooled, prompts = _lengths_twice(drafting, ks[1:])
    if prompts < _ENOUGH_PROMPTS:
        return None
    away = (own.map(np.log) - pooled.map(np.log)).map(np.nan_to_num)
    low, high = away.limits(1 - 0.05 / len(ks))
    moved = (np.abs(away.point) > TRANSFERS) & ((low > 0) | (high < 0))
    worst = int(np.argmax(np.where(moved, np.abs(away.point), 0)))
    return (ks[1 + worst], float(own.point[worst]), float(pooled.point[worst])) if moved.any() else None


def dispersion(drafted: Array, accepted: Array) -> float | None:
    """Variance of acceptance between prompts over what chance alone gives (Pearson's chi-square over its freedom).

    Shape (prompts,) each. About 1 for prompts that are alike but drafted independently, larger for real ones, and
    smaller for copies of one text. None from few prompts, or where nothing or everything was accepted.
    """
    enough = drafted >= _ENOUGH_DRAFTS
    n, x = drafted[enough], accepted[enough]
    if len(n) < _ENOUGH_PROMPTS or not 0 < x.sum() < n.sum():
        return None
    rate = x.sum() / n.sum()
    return float(np.sum((x - n * rate) ** 2 / (n * rate * (1 - rate))) / (len(n) - 1))


def _pooled(drafting: Sequence[Block], ks: tuple[int, ...], rng: np.random.Generator) -> Sampled:
    """Acceptance length at each K above 0, from position rates pooled over all Ks."""
    rates = positions(drafting, ks[-1], rng)
    return rates.map(lambda a: 1 + np.cumsum(a, axis=-1))[[k - 1 for k in ks[1:]]]


def _lengths_twice(drafting: Iterable[Block], ks: tuple[int, ...]) -> tuple[Sampled, Sampled, int]:
    """Acceptance length at each K from its own drafts and from all, the same prompts in each draw, and their number."""
    counts: dict[str, Array] = defaultdict(lambda: np.zeros((2, len(ks), ks[-1])))
    for block in drafting:
        for prompt in block.prompts:
            width = len(prompt.drafted)
            counts[prompt.prompt][:, ks.index(block.cell.k), :width] += (prompt.drafted, prompt.accepted)
    stacked = np.array(list(counts.values())).reshape(-1, 2, len(ks), ks[-1])
    both = np.concatenate([stacked, stacked.sum(axis=2, keepdims=True)], axis=2)
    flat = both.reshape(len(both), 2, (len(ks) + 1) * ks[-1])
    rates = _ratio(flat[:, 1], flat[:, 0], np.random.default_rng(0))
    lengths = rates.map(lambda a: 1 + np.cumsum(a.reshape(*a.shape[:-1], len(ks) + 1, ks[-1]), axis=-1))
    last = [k - 1 for k in ks]
    return lengths[list(range(len(ks))), last], lengths[len(ks)][last], len(both)


def by_prompt(blocks: Iterable[Block], k_max: int) -> tuple[Array, Array]:
    """Drafted and accepted counts, each of shape (prompts, k_max)."""
    counts: dict[str, Array] = defaultdict(lambda: np.zeros((2, k_max)))
    for block in blocks:
        for prompt in block.prompts:
            width = len(prompt.drafted)
            counts[prompt.prompt][:, :width] += (prompt.drafted, prompt.accepted)
    stacked = np.array(list(counts.values())).reshape(-1, 2, k_max)
    return stacked[:, 0], stacked[:, 1]


def _tokens_over_steps(blocks: Iterable[Block], ks: tuple[int, ...], rng: np.random.Generator) -> Sampled:
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
