"""What a profile says of clients that always have so many requests at a server: the load of a validation.

A closed loop of c clients is a queue with c places where everybody waits from the beginning. So it is `replay`'s model
that answers, prefills of others and the thinner batches at the end included, which step time over acceptance length
at batch size c leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsd_tune.errors import UsageError
from dsd_tune.model.choices import NO_SPECULATION, TABLE, Choice, choices
from dsd_tune.model.queueing import Pace, Queue
from dsd_tune.model.recalled import surface_of
from dsd_tune.model.redrawn import Redrawn
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Profile
from dsd_tune.records.trace import Request
from dsd_tune.records.validation import ServedArm

_DRAWN = 16
"""Draws of the surface and of luck, as in `replay`."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Loads of `concurrency` requests at any time; a token of a prompt lengthens a step by `prefill_s` seconds.

    `texts` holds the tokens of prompt and answer of each request of each load.
    """

    concurrency: int
    texts: tuple[tuple[tuple[int, int], ...], ...]
    prefill_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one arm is expected to show: mean TPOT in seconds, and tokens drafted for a request in a step.

    `acceptance_length` is what a step with drafts yields, None where there are none.
    """

    tpot_s: Interval
    mean_k: float
    acceptance_length: float | None


class Expectations:
    """Outcomes of the arms that a profile was decided on."""

    def __init__(self, profile: Profile) -> None:
        self._surface = surface_of(profile, np.random.default_rng(0))
        self._decision = profile.decision

    def steady_tpot_s(self, arm: ServedArm, concurrency: int) -> float | None:
        """TPOT while exactly `concurrency` requests decode, in seconds; None where nothing is known."""
        choice = self._choice(arm, concurrency)
        return float(np.exp(choice.log_tpot.point[-1])) if choice else None

    def of(self, arm: ServedArm, load: ClosedLoop) -> Outcome | None:
        """What `load` would see; None where nothing is known, as of a policy that looks at more than batch size."""
        choice = self._choice(arm, load.concurrency)
        return _outcome(choice, load) if choice else None

    def _choice(self, arm: ServedArm, concurrency: int) -> Choice | None:
        names = {
            ServedArm.NO_SPEC: NO_SPECULATION,
            ServedArm.NO_SPEC_TWIN: NO_SPECULATION,
            ServedArm.FIXED: f"K={self._decision.fixed_k}",
            ServedArm.TABLE: TABLE,
        }
        if arm not in names:
            return None
        try:
            return choices(self._surface, concurrency, self._decision.table).named(names[arm])
        except UsageError:  # batch sizes that the load passes through were not measured
            return None


def _outcome(choice: Choice, load: ClosedLoop) -> Outcome:
    """The value from the estimates, under some luck of the text; the interval from draws of both."""
    pace = choice.pace(load.prefill_s)
    served = [_serve(pace, load, draw) for draw in range(_DRAWN)]
    drawn = [_serve(choice.pace(load.prefill_s, draw), load, draw) for draw in range(_DRAWN)]
    value = float(np.mean([_mean_tpot_s(queues) for queues in served]))
    tpot = Redrawn(value, np.array([_mean_tpot_s(queues) for queues in drawn])).interval()
    steps = np.mean([queue.seconds_at for queues in served for queue in queues], axis=0) / np.array(pace.step_s)
    by_request = steps * np.arange(1, load.concurrency + 1)
    ks = np.array(pace.ks)
    drafting = np.where(ks > 0, by_request, 0.0)
    length = float(drafting @ np.array(pace.tokens) / drafting.sum()) if drafting.any() else None
    return Outcome(tpot, float(by_request @ ks / by_request.sum()), length)


def _serve(pace: Pace, load: ClosedLoop, draw: int) -> list[Queue]:
    rng = np.random.default_rng(draw)
    queues = []
    for texts in load.texts:
        queue = Queue(pace)
        queue.feed([Request(0.0, *lengths) for lengths in texts], rng.standard_normal(len(texts)).tolist())
        queue.drain()
        queues.append(queue)
    return queues


def _mean_tpot_s(queues: list[Queue]) -> float:
    return float(np.mean([queue.tpot_s.summary(())[0] for queue in queues]))
