"""The flags of `replay` that say what traffic there is, and which drafter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.importers.traces import read_lengths, read_trace
from dsd_tune.model import arrivals
from dsd_tune.records.trace import Request


def stated_traffic(
    trace: Path | None,
    sec_multiplier: float | None,
    rate: float | None,
    rollout: int | None,
    lengths: Path | None,
    num_prompts: int,
) -> Iterator[Request]:
    """Requests in the order of their arrival; a file is read as they are consumed.

    Raises:
        UsageError: the flags name no traffic, or two; at the first request, if the file is none.
    """
    if sum(source is not None for source in (trace, rate, rollout)) != 1:
        raise UsageError("one source of traffic is needed.", "Give --trace, --poisson or --rollout.")
    if sec_multiplier is not None and not 0 < sec_multiplier < math.inf:
        raise UsageError(f"--timed-trace-sec-multiplier {sec_multiplier:g} is no factor.", "Give 1 or 0.001.")
    if trace is not None:
        if lengths is not None:
            raise UsageError("a trace has its own lengths.", "Leave --lengths out.")
        return read_trace(trace, sec_multiplier)
    if lengths is None:
        raise UsageError("--lengths is missing.", "Name a file with the columns prompt_tokens,output_tokens.")
    if rollout is not None:
        return arrivals.rollout(read_lengths(lengths), rollout)
    if rate is None or not 0 < rate < math.inf:
        raise UsageError(f"--poisson {rate} is no rate.", "Give requests a second, such as 2.5.")
    return arrivals.poisson(read_lengths(lengths), rate, num_prompts)


def stated_acceptance(text: str, k_max: int) -> tuple[float, ...]:
    """Acceptance at each position up to `k_max`.

    Raises:
        UsageError: it is no falling list of shares, or too short.
    """
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = (math.nan,)
    if not all(0 <= rate <= 1 for rate in rates) or any(right > left for left, right in pairwise(rates)):
        raise UsageError(
            f"--acceptance {text} is no falling list of shares.",
            "Give the share accepted at each position with all before it, such as 0.8,0.6,0.45.",
        )
    if len(rates) < k_max:
        raise UsageError(
            f"--acceptance {text} ends before position {k_max}, the largest K measured.", "Give a share for each."
        )
    return rates
