"""Traffic that nobody recorded: lengths somebody did, with arrivals from chance or all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import numpy as np

from dsd_tune.records.trace import Request

_CHUNK = 4096


def poisson(lengths: Iterable[Request], rate_per_s: float, count: int) -> Iterator[Request]:
    """`count` requests at independent intervals with mean 1 / `rate_per_s`, from 0 s on; the same at every call."""
    rng = np.random.default_rng(0)
    gaps_s = chain.from_iterable(iter(lambda: rng.exponential(1 / rate_per_s, _CHUNK).tolist(), None))
    now_s = 0.0
    for like, gap_s in zip(islice(lengths, count), gaps_s, strict=False):
        yield Request(now_s, like.prompt_tokens, like.output_tokens)
        now_s += gap_s


def rollout(lengths: Iterable[Request], count: int) -> Iterator[Request]:
    """`count` requests that are all there at 0 s."""
    for like in islice(lengths, count):
        yield Request(0.0, like.prompt_tokens, like.output_tokens)
