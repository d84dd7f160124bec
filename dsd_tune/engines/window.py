"""The window of a context: between which lengths its sequences are measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartLengths:
    """How long a prompt may be for sequences to begin with it, in tokens."""

    least: int
    most: int


def start_lengths(context: int, contexts: Collection[int]) -> StartLengths:
    """Where the sequences of one of several contexts begin; where they end is the context itself.

    The smallest context's window reaches from the prompts as they are, since no other covers their beginnings. Any
    other's begins at half of it, so that those an octave apart share no length and a time belongs to one of them.
    At least a quarter of a window is left to the model's own text.
    """
    if context <= min(contexts):
        return StartLengths(1, context // 2)
    return StartLengths(context // 2, context * 3 // 4)
