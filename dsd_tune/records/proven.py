"""The advice that is left after servers were asked."""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.validation import ServedArm, Validation

_VERDICTS = {ServedArm.FIXED: Verdict.FIXED, ServedArm.TABLE: Verdict.TABLE}


def proven(profile: Profile) -> Profile:
    """The profile with the verdict of servers: the advice if they proved it, what is left of that if they did not.

    Where they could not tell, what the sweep said stands.
    """
    record = profile.validation
    if record is None or record.advised not in _VERDICTS or record.said is Said.UNCLEAR:
        return profile
    verdict = _VERDICTS[record.advised] if record.said is Said.BETTER else _left(record)
    if verdict is profile.decision.verdict:
        return profile
    decision = replace(profile.decision, verdict=verdict, reason=f"on servers, {record.outcome}")
    return replace(profile, decision=decision)


def _left(refuted: Validation) -> Verdict:
    """The fixed K where it beat the advice, as far as that is better than no speculation; else nothing."""
    if not refuted.lost_to_fixed:
        return Verdict.OFF
    left: dict[Said | None, Verdict] = {Said.BETTER: Verdict.FIXED, Said.UNCLEAR: Verdict.UNCLEAR}
    return left.get(refuted.overall(ServedArm.FIXED), Verdict.OFF)
