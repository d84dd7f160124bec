"""Policies by name, made from a profile."""

from __future__ import annotations

from enum import StrEnum
from itertools import count, takewhile

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table
from dsd_tune.records.warning import Code
from dsd_tune.runtime.costs import StepTimes
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.policies.goodput import GoodputPolicy
from dsd_tune.runtime.policies.hysteresis import HysteresisPolicy
from dsd_tune.runtime.policies.rotate import RotatePolicy
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import Policy


class PolicyName(StrEnum):
    """The values of `DSD_TUNE_POLICY`."""

    TABLE = "table"
    HYSTERESIS = "hysteresis"
    GOODPUT = "goodput"
    FIXED = "fixed"
    ROTATE = "rotate"

    @classmethod
    def parse(cls, name: str) -> PolicyName:
        """The policy of that name.

        Raises:
            UsageError: there is none.
        """
        if name not in set(cls):
            raise UsageError(f"DSD_TUNE_POLICY={name} is no policy.", f"Use one of {', '.join(cls)}.")
        return cls(name)

    def wanted_ks(self, profile: Profile, table: Table) -> frozenset[int]:
        """The Ks that the policy may choose, which an engine must be started for."""
        match self:
            case PolicyName.TABLE | PolicyName.HYSTERESIS:
                return table.ks
            case PolicyName.FIXED:
                return table.ks | {profile.decision.fixed_k}
            case PolicyName.GOODPUT | PolicyName.ROTATE:
                return table.ks | StepTimes.of(profile).ks

    def make(self, profile: Profile, table: Table, ks: frozenset[int]) -> Policy:
        """A new policy that chooses among `ks`; `table` is the profile's, as far as the engine's batches reach.

        Raises:
            ProfileMismatch: the profile lacks what the policy needs.
        """
        match self:
            case PolicyName.TABLE:
                return TablePolicy(table)
            case PolicyName.HYSTERESIS:
                return HysteresisPolicy(table, profile.decision.boundaries)
            case PolicyName.GOODPUT:
                return GoodputPolicy(StepTimes.of(profile), _rates(profile), table, ks)
            case PolicyName.FIXED:
                return FixedPolicy(_fixed_k(profile, ks))
            case PolicyName.ROTATE:
                return RotatePolicy(ks)


def _fixed_k(profile: Profile, ks: frozenset[int]) -> int:
    k = profile.decision.fixed_k
    if k not in ks:
        raise ProfileMismatch(
            f"Its fixed K is {k}, and this engine can choose among {', '.join(map(str, sorted(ks)))}.",
            f"Restart vLLM with num_speculative_tokens of {k} or more, or use another policy.",
        )
    return k


def _rates(profile: Profile) -> tuple[float, ...]:
    """Acceptance at positions 1, 2, ... without a gap, where it adds up to tokens at every K."""
    method = profile.environment.method if profile.environment else ""
    if method in DRAFTER_FREE_METHODS or any(warning.code is Code.DEPENDS_ON_K for warning in profile.warnings):
        raise ProfileMismatch(
            f"Acceptance by position does not foretell a step's tokens with {method}, and goodput relies on it.",
            "Use another policy.",
        )
    known = {one.position: one.rate.value for one in profile.acceptance}
    if 1 not in known:
        raise ProfileMismatch("It has no acceptance by position, which goodput needs.", "Use another policy.")
    return tuple(known[i] for i in takewhile(known.__contains__, count(1)))
