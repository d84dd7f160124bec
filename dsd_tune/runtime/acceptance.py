"""Acceptance of the moment: old drafts are forgotten slowly, and at once where the text has become another."""

from __future__ import annotations

from collections.abc import Sequence

from dsd_tune.runtime.costs import tokens_per_step

WINDOW_DRAFTS, WINDOW_STEPS = 512, (16, 128)
"""Acceptance is averaged over so many drafts, exponentially, but over no fewer and no more steps than these."""
LATEST_DRAFTS, LATEST_STEPS = 64, (8, 32)
"""The same for the latest drafts, which are set against all of them."""
LATEST_LEAST = 12.0
"""Fewer drafts contradict nothing."""
SURPRISE = 3.0
"""Standard errors of the latest drafts. Beyond, the text is another, and waiting for the average costs more."""
LEAST_VARIANCE = 0.05
"""Of one draft: an average near 0 or 1 is never sure of itself."""
PRIOR_DRAFTS = 4.0
"""How many drafts are worth as much as what was known before them: the profile, and all that has faded since."""


class Acceptance:
    """At each position the share of drafts accepted, given that all before them were.

    What was seen loses weight with every step, slowly where nothing was drafted, so that a probe after a long time at
    K=0 counts. Position 1 keeps its estimate until then. Later ones return to the profile's, changed as position 1 has
    changed.
    """

    def __init__(self, rates: Sequence[float]) -> None:
        """`rates[i]` is the profile's share of drafts accepted at position i + 1 with all before it."""
        self._prior = [rate / before if before else 0.0 for rate, before in zip(rates, (1.0, *rates), strict=False)]
        self._drafted = [0.0] * len(rates)
        self._accepted = [0.0] * len(rates)
        self._latest_drafted = 0.0
        self._latest_accepted = 0.0
        self._known = self._prior[0]
        self._keep_latest = 1 - 1 / LATEST_STEPS[1]
        self.tokens: Sequence[float] = tokens_per_step(rates)
        """Tokens a sequence gets in one step at K = 0, 1, ... under the acceptance of the moment."""

    def observe(self, drafted: Sequence[int], accepted: Sequence[int], steps: int) -> None:
        """As `Observer.observe`."""
        if drafted:
            self._keep_latest = _kept(drafted[0], LATEST_DRAFTS, LATEST_STEPS)
        self._fade(drafted, steps)
        self._add(drafted, accepted)
        if drafted and self._surprised():
            self._forget()
        self._estimate()

    def _fade(self, drafted: Sequence[int], steps: int) -> None:
        """What fades of position 1 is what will be known before the drafts to come."""
        idle = _kept(0, WINDOW_DRAFTS, WINDOW_STEPS) ** steps
        busy = _kept(drafted[0], WINDOW_DRAFTS, WINDOW_STEPS) ** steps if drafted else idle
        kept = [busy] * len(drafted) + [idle] * len(self._drafted)
        faded = (1 - kept[0]) * self._drafted[0]
        if faded:
            self._known += (self._accepted[0] / self._drafted[0] - self._known) * faded / (faded + PRIOR_DRAFTS)
        self._drafted = [keep * seen for keep, seen in zip(kept, self._drafted, strict=False)]
        self._accepted = [keep * seen for keep, seen in zip(kept, self._accepted, strict=False)]
        self._latest_drafted *= self._keep_latest**steps
        self._latest_accepted *= self._keep_latest**steps

    def _add(self, drafted: Sequence[int], accepted: Sequence[int]) -> None:
        if drafted:
            self._latest_drafted += drafted[0]
            self._latest_accepted += accepted[0]
        before = drafted[0] if drafted else 0
        for i in range(min(len(drafted), len(self._drafted))):
            self._drafted[i] += min(before, drafted[i])
            self._accepted[i] += accepted[i]
            before = accepted[i]

    def _surprised(self) -> bool:
        """Whether the latest drafts of position 1 contradict the average."""
        seen = self._latest_drafted
        if seen < LATEST_LEAST:
            return False
        share = self._accepted[0] / self._drafted[0]
        variance = max(share * (1 - share), LEAST_VARIANCE)
        return (self._latest_accepted / seen - share) ** 2 * seen > SURPRISE**2 * variance

    def _forget(self) -> None:
        """Only the latest drafts count; what later positions saw has as little weight from now on."""
        weight = self._latest_drafted / self._drafted[0]
        self._drafted = [weight * seen for seen in self._drafted]
        self._accepted = [weight * seen for seen in self._accepted]
        self._drafted[0], self._accepted[0] = self._latest_drafted, self._latest_accepted
        self._known = self._latest_accepted / self._latest_drafted

    def _estimate(self) -> None:
        share = self._mean(0, self._known)
        change = share / self._prior[0] if self._prior[0] else 1.0
        tokens = [1.0, 1.0 + share]
        for i in range(1, len(self._prior)):
            share *= self._mean(i, min(1.0, change * self._prior[i]))
            tokens.append(tokens[i] + share)
        self.tokens = tokens

    def _mean(self, i: int, known: float) -> float:
        return (self._accepted[i] + PRIOR_DRAFTS * known) / (self._drafted[i] + PRIOR_DRAFTS)


def _kept(drafts: int, window: int, steps: tuple[int, int]) -> float:
    """The share of what was seen that outlives a step with so many drafts."""
    shortest, longest = steps
    return 1 - min(max(drafts / window, 1 / longest), 1 / shortest)
