"""Every K in turn, to see them all under the same traffic."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, cycle, repeat

from dsd_tune.runtime.policy import StepView

STEPS = 32
"""How long each K stays: long enough that the two steps of a change hardly count."""


class RotatePolicy:
    """Each K for a number of steps, from the smallest to the largest and over again."""

    __slots__ = ("_ks",)

    def __init__(self, ks: Iterable[int], steps: int = STEPS) -> None:
        self._ks = chain.from_iterable(repeat(k, steps) for k in cycle(sorted(ks)))

    def k(self, step: StepView) -> int:
        """The K whose turn it is."""
        return next(self._ks)
