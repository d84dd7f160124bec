"""Who decides K, one step at a time. Runs inside an engine: it must be cheap, and what it gets wrong is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class StepView(Protocol):
    """What a policy may know of the step that was just scheduled. K applies to the drafts made at its end."""

    @property
    def batch_size(self) -> int:
        """Requests scheduled, chunks of prefills included: what vLLM looks up."""
        ...

    @property
    def decoding(self) -> int:
        """Those of them that will decode in the next step, and so can use drafts."""
        ...

    @property
    def k(self) -> int:
        """K of the step before."""
        ...

    @property
    def context_tokens(self) -> int:
        """Tokens that the scheduled requests have computed so far, in sum. Costs a pass over them."""
        ...


class Policy(Protocol):
    """A rule that gives K for each step, out of the Ks that the engine was started with."""

    def k(self, step: StepView) -> int:
        """K for the drafts made at the end of `step`."""
        ...


@runtime_checkable
class Observer(Protocol):
    """A policy that wants to know what became of the drafts."""

    def observe(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """Requests with a draft at each position (from 1), and with that draft accepted.

        They are those of one step, the last of `steps`: where a step holds many requests, not every one is counted,
        but always the first in which another K shows.
        """
        ...
