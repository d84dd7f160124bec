"""The one place where a policy enters vLLM: the scheduler's dense lookup, which it only tests for None and indexes."""

from __future__ import annotations

from typing import Protocol

from dsd_tune.runtime.policy import Policy


class HasLookup(Protocol):
    """The only attribute of vLLM's scheduler that is touched. None means: started without a table."""

    dynamic_sd_lookup: object


class PolicyLookup:
    """Stands in for vLLM's `list[int]`: indexed by the number of requests scheduled, it asks the policy."""

    __slots__ = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __getitem__(self, batch_size: int) -> int:
        return self.policy.k(batch_size)


def install(scheduler: HasLookup, policy: Policy) -> bool:
    """Let `policy` set K from the next step on. False, and nothing changed, if vLLM runs without a table.

    An engine started without one has captured other CUDA graphs and pads its batches for a fixed K, so a
    policy put in later would describe an engine that nobody deploys.
    """
    if getattr(scheduler, "dynamic_sd_lookup", None) is None:
        return False
    scheduler.dynamic_sd_lookup = PolicyLookup(policy)
    return True
