"""Batches of sequences, aligned where the answer begins, so that only answer positions are drafted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dsd_tune.testbed.training.store import Part, Sequence


@dataclass(frozen=True, slots=True)
class Batch:
    """``M`` positions of which the last ``S`` draft; see ``layer`` for the index convention."""

    padding: Tensor  # (batch,) empty positions on the left
    inputs: Tensor  # (batch, M) the token after each position
    stored: Tensor  # (batch, M, columns) bf16 features
    final: Tensor  # (batch, S, hidden) bf16, the target's hidden state that predicts the label
    labels: Tensor  # (batch, S) the target's greedy token
    valid: Tensor  # (batch, S) whether the answer reaches that far


def batches(
    corpus: list[Part], columns: slice, hidden: int, size: int, seed: int, share: slice = slice(None)
) -> Iterator[Batch]:
    """Yield one epoch in random order, or a ``share`` of it; sequences of like lengths go together."""
    rng = random.Random(seed)
    pairs = [(part, sequence) for part in corpus for sequence in part.sequences]
    order = sorted(pairs, key=lambda pair: _bucket(pair[1], rng))
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    rng.shuffle(groups)
    for group in groups[share]:
        yield _batch(columns, hidden, group)


def frequent(corpus: list[Part], count: int) -> Tensor:
    """Return the ids of the ``count`` tokens that occur most in answers, in rising order."""
    counts: Counter[int] = Counter()
    for part in corpus:
        for sequence in part.sequences:
            counts.update(part.tokens_of(sequence)[sequence.prompt :].tolist())
    return torch.tensor(sorted(token for token, _ in counts.most_common(count)))


def _bucket(sequence: Sequence, rng: random.Random) -> tuple[int, int, float]:
    answer = sequence.length - sequence.prompt
    return -(answer // 32), sequence.prompt // 24, rng.random()


def _batch(columns: slice, hidden: int, group: list[tuple[Part, Sequence]]) -> Batch:
    prompt = max(s.prompt for _, s in group)
    total = prompt + max(s.length - s.prompt for _, s in group)
    tokens = np.zeros((len(group), total), dtype=np.int64)
    stored = torch.zeros(len(group), total, columns.stop - columns.start, dtype=torch.bfloat16)
    final = torch.zeros(len(group), total, hidden, dtype=torch.bfloat16)
    valid = torch.zeros(len(group), total, dtype=torch.bool)
    for row, (part, s) in enumerate(group):
        at = slice(prompt - s.prompt, prompt - s.prompt + s.length)
        tokens[row, at] = part.tokens_of(s)
        stored[row, at] = part.hidden_of(s, columns)
        final[row, at] = part.hidden_of(s, slice(0, hidden))
        valid[row, at] = True
    ids = torch.from_numpy(tokens)
    return Batch(
        padding=torch.tensor([prompt - s.prompt for _, s in group]),
        inputs=ids[:, 1:-1],
        stored=stored[:, :-2],
        final=final[:, prompt:-1],
        labels=ids[:, prompt + 1 :],
        valid=valid[:, prompt + 1 :],
    )
