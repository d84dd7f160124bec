"""One K, whatever happens."""

from __future__ import annotations

from dsd_tune.runtime.policy import StepView


class FixedPolicy:
    """One K for every step, which may be changed between two steps: how a sweep switches K live."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def k(self, step: StepView) -> int:
        """The K last set."""
        return self.value
