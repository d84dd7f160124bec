"""The advice that is left after servers were asked."""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.validation import ServedArm

_ADVICE = (ServedArm.FIXED, ServedArm.TABLE)


def proven(profile: Profile) -> Profile:
    """The profile with speculation off where servers saw its advice win nothing, or lose; as it is where they did not.

    Where they could not tell, what the sweep said stands.
    """
    record = profile.validation
    if record is None or record.advised not in _ADVICE or record.said not in (Said.SAME, Said.WORSE):
        return profile
    decision = replace(profile.decision, verdict=Verdict.OFF, reason=f"on servers, {record.outcome}")
    return replace(profile, decision=decision)
