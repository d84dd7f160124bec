"""Step times that a profile measured in the table's engine, ready to be asked in every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from dsd_tune.records.measurement import Arm
from dsd_tune.records.profile import Profile


class StepTimes:
    """Step time by batch size and K: between two measured batch sizes a straight line, outside of them unknown."""

    __slots__ = ("_by_size", "ks")

    def __init__(self, measured: Mapping[int, Mapping[int, float]]) -> None:
        """`measured[k][batch_size]` is a step time in seconds."""
        self.ks = frozenset(measured)
        self._by_size: dict[int, dict[int, float]] = {}
        for k in sorted(measured):
            for size, step_s in _drawn(measured[k]).items():
                self._by_size.setdefault(size, {})[k] = step_s

    @classmethod
    def of(cls, profile: Profile) -> StepTimes:
        """What the profile knows of the arm `dsd`."""
        measured: dict[int, dict[int, float]] = {}
        for estimate in profile.cells:
            if estimate.cell.arm is Arm.DSD and estimate.step_s is not None:
                measured.setdefault(estimate.cell.k, {})[estimate.cell.batch_size] = estimate.step_s.value
        return cls(measured)

    def at(self, batch_size: int) -> Mapping[int, float]:
        """Seconds for each K known at a batch size, in the order of K; empty where nothing is known."""
        return self._by_size.get(batch_size, {})


def tokens_per_step(rates: Sequence[float]) -> tuple[float, ...]:
    """Tokens a sequence gets in one step at K = 0, 1, ... up to the positions given, the bonus token included.

    `rates[i]` is the share of drafts at position i + 1 that are accepted with all before them, so the expectation is
    1 + the sum over positions up to K (Leviathan et al. 2023, section 3.1, with measured rates in place of powers).
    """
    tokens = [1.0]
    for rate in rates:
        tokens.append(tokens[-1] + rate)
    return tuple(tokens)


def _drawn(points: Mapping[int, float]) -> dict[int, float]:
    """Every whole batch size from the first to the last point."""
    drawn = dict(points)
    for left, right in pairwise(sorted(points)):
        slope = (points[right] - points[left]) / (right - left)
        drawn |= {size: points[left] + slope * (size - left) for size in range(left + 1, right)}
    return drawn
