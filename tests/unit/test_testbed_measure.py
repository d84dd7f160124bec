"""The numbers in a model card follow from the counts."""

import re

import numpy as np
import pytest

from dsd_tune.testbed.training.measure import Counts, table


def _rows(counts: Counts) -> list[tuple[float, float, float]]:
    lines = table(counts).splitlines()[2:]
    numbers = [re.findall(r"\d\.\d{3}", line) for line in lines]
    return [(float(a), float(b), float(c)) for a, b, c in numbers]


def test_acceptance_is_conditional_and_length_adds_up() -> None:
    """Of 100 steps 60 accept one draft, 30 two, 15 three, 0 four: 0.6, 0.5, 0.5, 0, and AL 1.6, 1.9, 2.05, 2.05."""
    counts = Counts(np.array([50, 50]), np.array([[30, 15, 8, 0], [30, 15, 7, 0]]))
    points = [row[0] for row in _rows(counts)]
    assert points == [0.6, 0.5, 0.5, 0.0, 1.6, 1.9, 2.05, 2.05]


def test_intervals_come_from_the_spread_between_prompts() -> None:
    """Prompts that disagree give a wide interval around the point, prompts that agree none."""
    alike = _rows(Counts(np.full(40, 10), np.tile([6, 3, 1, 1], (40, 1))))
    assert all(point == low == high for point, low, high in alike)
    halves = np.repeat([[9, 5, 2, 1], [3, 1, 1, 1]], 20, axis=0)
    point, low, high = _rows(Counts(np.full(40, 10), halves))[0]
    assert low < point < high
    assert high - low > 0.1


def test_counts_of_different_prompts_are_rejected() -> None:
    """Counts for other prompts than the steps are a mistake, not a table."""
    with pytest.raises(ValueError, match="row of counts"):
        Counts(np.array([1, 2, 3]), np.zeros((2, 4)))
