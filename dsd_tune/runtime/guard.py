"""Keeps a policy's mistakes out of the engine: whatever it does wrong, the table takes over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsd_tune.runtime.policy import Observer, Policy, StepView


class Guard:
    """A policy whose K is always one that the engine was started for.

    After its first mistake the policy is not asked again, and `say` is told once.
    """

    __slots__ = ("_fallback", "_ks", "_observer", "_policy", "_say")

    def __init__(self, policy: Policy, ks: frozenset[int], fallback: Sequence[int], say: Callable[[str], None]) -> None:
        """`fallback[batch_size]` is the K without the policy; index 0 is not used."""
        self._policy: Policy | None = policy
        self._observer = policy if isinstance(policy, Observer) else None
        self._ks = ks
        self._fallback = fallback
        self._say = say

    @property
    def observes(self) -> bool:
        """Whether the policy wants to know what became of the drafts."""
        return self._observer is not None

    def k(self, step: StepView) -> int:
        """K for a step. Never raises."""
        if self._policy is not None:
            try:
                k = self._policy.k(step)
                if k in self._ks:
                    return k
                self._give_up(f"chose K={k!r}, and the engine was started for {sorted(self._ks)}")
            except Exception as error:  # noqa: BLE001 (nothing may reach the engine)
                self._give_up(f"failed with {error!r}")
        return self._fallback[min(step.batch_size, len(self._fallback) - 1)]

    def observe(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """Tell the policy what became of the drafts. Never raises."""
        if self._observer is not None:
            try:
                self._observer.observe(drafted, accepted, steps)
            except Exception as error:  # noqa: BLE001 (nothing may reach the engine)
                self._give_up(f"failed with {error!r}")

    def _give_up(self, why: str) -> None:
        name = type(self._policy).__name__
        self._policy = self._observer = None
        self._say(f"{name} {why}. The table decides from now on. Please report this.")
