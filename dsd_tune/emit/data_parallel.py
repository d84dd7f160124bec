"""A decision for several data-parallel ranks, under which vLLM drops a table: the best fixed K in its place."""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.records.profile import Profile, Verdict


def for_ranks(profile: Profile, ranks: int) -> Profile:
    """The profile as it is deployed on `ranks` ranks, each an engine like the one measured with batches of its own.

    In place of a table its best fixed K is advised, where that alone saves something for sure; else nothing is.
    """
    if ranks == 1:
        return profile
    request, decision = profile.request, profile.decision
    if request:
        request = replace(request, engine_flags=(*request.engine_flags, "--data-parallel-size", str(ranks)))
    if decision.verdict is Verdict.TABLE:
        if decision.fixed_gain is None or decision.fixed_gain.low > 0:
            decision = replace(decision, verdict=Verdict.FIXED)
        else:
            reason = f"vLLM drops the table on {ranks} data-parallel ranks, and no fixed K saves TPOT for sure"
            decision = replace(decision, verdict=Verdict.UNCLEAR, reason=reason)
    return replace(profile, request=request, decision=decision)


def on_ranks(measured: Profile, deployed: Profile, ranks: int) -> tuple[str, ...]:
    """That a fixed K took a table's place, as remarks; nothing where none did."""
    if (measured.decision.verdict, deployed.decision.verdict) != (Verdict.TABLE, Verdict.FIXED):
        return ()
    remark = (
        f"vLLM drops a table with --data-parallel-size {ranks}: K={deployed.decision.fixed_k} is the best fixed one "
        f"for the batch sizes of one rank, all requests divided by {ranks}. Where those stay small, fit again with "
        f"--peak; {ranks} independent servers behind a router can keep the table"
    )
    return (remark,)
