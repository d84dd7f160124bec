"""The queue that `replay` forecasts, step by step and token by token, on the law of a simulated engine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.trace import Request


@dataclass
class Running:
    """A request that decodes."""

    request: Request
    first_s: float
    made: int


@dataclass(frozen=True)
class Truth:
    """What really happened, in seconds; the arrays have an item for each request that ended."""

    tpot_s: np.ndarray
    completion_s: np.ndarray
    finished_s: float
    seconds_at: np.ndarray


def step_by_step(
    engine: SimulatedEngine, requests: Sequence[Request], ks: Sequence[int], arm: Arm, prefill_s: float, seed: int = 0
) -> Truth:
    """Serve `requests` with `ks[b - 1]` drafts at batch size b, drawing every token's acceptance."""
    rng = np.random.default_rng(seed)
    waiting = list(reversed(requests))
    now_s, running, tpot_s, completion_s = 0.0, [], [], []
    seconds_at = np.zeros(len(ks))
    step_at_s = [engine.true_step_s(Cell(arm, b, k)) for b, k in enumerate(ks, start=1)]
    chances = np.array(engine.acceptance)
    while waiting or running:
        if not running:
            now_s = max(now_s, waiting[-1].arrival_s)
        new = []
        while waiting and len(running) + len(new) < len(ks) and waiting[-1].arrival_s <= now_s:
            new.append(waiting.pop())
        batch = len(running) + len(new)
        k = ks[batch - 1]
        step_s = step_at_s[batch - 1] + prefill_s * sum(r.prompt_tokens for r in new)
        now_s += step_s
        seconds_at[batch - 1] += step_s
        accepted = (rng.random((len(running), k)) < chances[:k]).cumprod(axis=1).sum(axis=1)
        for one, more in zip(running, accepted.tolist(), strict=True):
            one.made += 1 + more
        running += [Running(r, now_s, 1) for r in new]
        for one in [one for one in running if one.made >= one.request.output_tokens]:
            running.remove(one)
            completion_s.append(now_s - one.request.arrival_s)
            if one.request.output_tokens > 1:
                tpot_s.append((now_s - one.first_s) / (one.request.output_tokens - 1))
    return Truth(np.array(tpot_s), np.array(completion_s), now_s, seconds_at)
