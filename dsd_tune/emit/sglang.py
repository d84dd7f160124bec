"""The decision as SGLang's adaptive JSON: keys are the smallest batch size of a tier, steps are Ks."""

from __future__ import annotations

from dsd_tune.emit.decision import advised_table, compact, method
from dsd_tune.emit.emission import Emission
from dsd_tune.emit.foreign import MEASURED_ELSEWHERE
from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table

_ADAPTED = frozenset({"eagle", "eagle3", "mtp"})
"""Methods that SGLang adapts, MTP under the name of EAGLE; it runs any other with fixed steps."""

_PADDING = (
    "SGLang looks up the batch size after it is padded to a CUDA graph, so a range may begin a few requests early"
)


def write(profile: Profile) -> Emission:
    """The file of `--speculative-adaptive-config`, with one candidate a tier: nothing is left to adapt.

    `null` where speculation is not advised.

    Raises:
        UsageError: SGLang would ignore the file for this method.
    """
    table = advised_table(profile)
    if table is None:
        return Emission(compact(None))
    if method(profile) not in _ADAPTED:
        raise UsageError(f"SGLang adapts eagle, eagle3 and mtp, and this is {method(profile)}.", "Fix the steps there.")
    tiers = {str(r.first): {"candidate_steps": [r.k]} for r in table.ranges}
    return Emission(compact(tiers), (_start(table), _PADDING, MEASURED_ELSEWHERE))


def _start(table: Table) -> str:
    """SGLang counts the bonus token among the draft tokens, and its initial steps must be some tier's."""
    return (
        "Start SGLang with --speculative-adaptive --speculative-adaptive-config FILE --speculative-eagle-topk 1 "
        f"--speculative-num-steps {table.k_max} --speculative-num-draft-tokens {table.k_max + 1} "
        f"--max-running-requests {table.max_num_seqs}"
    )
