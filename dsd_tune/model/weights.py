"""How much each batch size counts: every doubling alike, or as often as it happens in somebody's traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.sampled import Array


@dataclass(frozen=True, slots=True)
class Weights:
    """`shares[b - 1]` is the weight of batch size b, with sum 1; `said` names them in words.

    `usual` is the batch size of most of the traffic, None if that is not known.
    """

    shares: Array
    said: str
    usual: int | None = None


def log_uniform_weights(max_num_seqs: int) -> Array:
    """Every doubling of the batch size counts alike; shape (max_num_seqs,), sum 1."""
    weights = 1.0 / np.arange(1, max_num_seqs + 1)
    return np.asarray(weights / weights.sum())


def every_doubling(max_num_seqs: int) -> Weights:
    """What is assumed where nothing is known of the traffic."""
    return Weights(log_uniform_weights(max_num_seqs), "every doubling of the batch size counts alike")


def up_to_peak(max_num_seqs: int, peak: int) -> Weights:
    """Every doubling up to `peak` alike, and nothing above.

    Raises:
        UsageError: `peak` lies above what was measured.
    """
    if not 1 <= peak <= max_num_seqs:
        raise UsageError(f"a peak of {peak} was not measured: batch sizes end at {max_num_seqs}.", "Measure up to it.")
    shares = np.where(np.arange(1, max_num_seqs + 1) <= peak, log_uniform_weights(max_num_seqs), 0.0)
    return Weights(shares / shares.sum(), f"every doubling up to a batch size of {peak} counts alike")


def from_histogram(max_num_seqs: int, histogram: Sequence[tuple[int, float]]) -> Weights:
    """Each batch size as often as the histogram (batch size, weight) says.

    Raises:
        UsageError: most of it lies above what was measured.
    """
    shares = np.zeros(max_num_seqs)
    for batch_size, weight in histogram:
        if batch_size <= max_num_seqs:
            shares[batch_size - 1] += weight
    total = sum(weight for _, weight in histogram)
    above = 1 - shares.sum() / total
    if above > 0.5:
        raise UsageError(
            f"{above:.0%} of the histogram lies above {max_num_seqs}, where nothing was measured.", "Measure up to it."
        )
    said = "batch sizes count as in the histogram"
    if above > 0:
        said += f", without the {above:.1%} of it above {max_num_seqs}"
    return Weights(shares / shares.sum(), said, int(np.argmax(shares)) + 1)
