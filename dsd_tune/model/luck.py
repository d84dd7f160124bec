"""How unequal the luck of requests is: the spread of accepted tokens, from the acceptance length alone."""

from __future__ import annotations

import numpy as np


def luck(length: float, k: int) -> float:
    """Standard deviation of tokens a step over the root of their mean, at acceptance length `length`.

    With one acceptance rate r for every position a step yields more than j tokens with chance r**j, j <= k
    (Leviathan et al. 2023), so r follows from the mean and gives the variance. A request of n tokens then misses its
    mean by about this times sqrt(n) tokens (renewal theory). 0 at K = 0, and where the length is not known.
    """
    positions = np.arange(k + 1)
    if not 1 < length < k + 1:
        return 0.0
    rate = _rate(length, k)
    variance = float(np.sum((2 * positions + 1) * rate**positions)) - length**2
    return float(np.sqrt(max(variance, 0.0) / length))


def _rate(length: float, k: int) -> float:
    """The acceptance rate at every position that yields `length` tokens a step, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if float(np.sum(middle ** np.arange(k + 1))) < length:
            low = middle
        else:
            high = middle
    return (low + high) / 2
