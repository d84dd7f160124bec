"""The decision that follows from costs alone: none."""

from __future__ import annotations

from dsd_tune.model.aim import Aim
from dsd_tune.records.profile import Decision, Verdict


def undecided(max_num_seqs: int, aim: Aim) -> Decision:
    """What can be told where acceptance is not known."""
    return Decision(
        verdict=Verdict.UNCLEAR,
        max_num_seqs=max_num_seqs,
        table=None,
        fixed_k=0,
        table_gain=None,
        fixed_gain=None,
        table_over_fixed=None,
        confirmed_over_fixed=None,
        fixed_worst_loss=0.0,
        boundaries=(),
        rivals=(),
        losing=(),
        objective=aim.said,
        weights="",
        reason="only cost was measured, and a K pays where a drafter gives more tokens a step than its cells ask for",
        remarks=(),
        capture_sizes=(),
    )
