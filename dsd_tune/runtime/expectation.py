"""What a profile says an engine should do, and how far the engine does something else."""

from __future__ import annotations

from enum import StrEnum

from dsd_tune.records.profile import Profile
from dsd_tune.runtime.costs import StepTimes
from dsd_tune.runtime.metering import Drift, StepSeen


class State(StrEnum):
    """How a server stands to the profile that `DSD_TUNE_PROFILE` names."""

    APPLIED = "applied"
    REFUSED = "refused"
    DRIFTED = "drifted"


class Expectation:
    """Step times and acceptance to compare with; without a profile, nothing to compare."""

    def __init__(self, profile: Profile | None) -> None:
        self.refused = profile is None
        self._times = StepTimes.of(profile) if profile else StepTimes({})
        self._rates = {one.position: one.rate.value for one in profile.acceptance} if profile else {}
        self._time, self._tokens = Drift(), Drift()

    @property
    def state(self) -> State:
        """Whether the profile is in force, and still describes the engine."""
        if self.refused:
            return State.REFUSED
        return State.DRIFTED if self._time.is_large or self._tokens.is_large else State.APPLIED

    def step_s(self, step: StepSeen) -> float | None:
        """The step time that was measured for such a step, None where none was. Takes note of the difference."""
        if not step.plain or step.step_s is None or step.k is None:
            return None
        expected = self._times.at(step.batch_size).get(step.k)
        if expected is not None:
            self._time.add(step.step_s, expected)
        return expected

    def accepted(self, step: StepSeen) -> float:
        """Drafts that should have been accepted. Takes note of the difference."""
        known = [i for i in range(len(step.drafted)) if i + 1 in self._rates]
        expected = sum(step.drafted[i] * self._rates[i + 1] for i in known)
        if expected:
            self._tokens.add(sum(step.accepted[i] for i in known), expected)
        return expected
