"""What a server's `/metrics` tells about K, beside vLLM's own: by (batch size, K), and unbiased acceptance.

vLLM divides accepted tokens at a position by all drafts; under a table most drafts never reached it.
"""

from __future__ import annotations

from typing import Any

from dsd_tune.runtime.expectation import Expectation, State
from dsd_tune.runtime.metering import StepSeen, size_range


class Exporter:
    """The Prometheus metrics of one server, for each of its engines."""

    def __init__(self, model: str, engines: list[int]) -> None:
        from prometheus_client import Counter, Gauge

        _forget_earlier()
        labels = ["model_name", "engine"]
        self._labels = {engine: (model, str(engine)) for engine in engines}
        self._ks: dict[int, int] = {}
        self._shown: State | None = None

        def counter(name: str, what: str, *more: str) -> Any:
            return Counter(f"dsd_tune:{name}", what, [*labels, *more])

        self._k = Gauge("dsd_tune:k", "K of the last step that showed it.", labels, multiprocess_mode="mostrecent")
        self._state = Gauge(
            "dsd_tune:state", "1 for what the profile is.", [*labels, "state"], multiprocess_mode="mostrecent"
        )
        self._switches = counter("k_switches", "Steps with another K than the step before.")
        self._steps = counter("steps", "Steps.", "batch_size", "k")
        self._seconds = counter("step_seconds", "Time of these steps.", "batch_size", "k")
        self._drafted = counter("drafted", "Requests with a draft at the position.", "position")
        self._accepted = counter("accepted", "Requests that accepted the draft at the position.", "position")
        self._expected = counter("expected_accepted", "Accepted drafts, had acceptance been the profile's.")
        self._compared = counter("compared_step_seconds", "Time of the steps that the profile knows.")
        self._predicted = counter("predicted_step_seconds", "What the profile says they take.")

    def show(self, state: State) -> None:
        """Show how the server stands to its profile."""
        if state is not self._shown:
            self._shown = state
            for labels in self._labels.values():
                for one in State:
                    self._state.labels(*labels, one).set(one is state)

    def export(self, engine: int, step: StepSeen, expectation: Expectation) -> None:
        """Count one step."""
        labels = self._labels[engine]
        for position, (drafted, accepted) in enumerate(zip(step.drafted, step.accepted, strict=True), start=1):
            self._drafted.labels(*labels, position).inc(drafted)
            self._accepted.labels(*labels, position).inc(accepted)
        self._expected.labels(*labels).inc(expectation.accepted(step))
        if step.k is not None:
            self._export_k(engine, step, step.k)
        predicted = expectation.step_s(step)
        if predicted is not None and step.step_s is not None:
            self._compared.labels(*labels).inc(step.step_s)
            self._predicted.labels(*labels).inc(predicted)

    def _export_k(self, engine: int, step: StepSeen, k: int) -> None:
        labels = self._labels[engine]
        self._k.labels(*labels).set(k)
        self._switches.labels(*labels).inc(self._ks.get(engine, k) != k)
        self._ks[engine] = k
        if step.step_s is not None:
            self._steps.labels(*labels, size_range(step.batch_size), k).inc()
            self._seconds.labels(*labels, size_range(step.batch_size), k).inc(step.step_s)


def _forget_earlier() -> None:
    """A process may start several engines, as vLLM's own metrics know; Prometheus takes each name once."""
    from prometheus_client import REGISTRY

    for collector in [one for one in REGISTRY._collector_to_names if _is_ours(one)]:
        REGISTRY.unregister(collector)


def _is_ours(collector: Any) -> bool:
    return str(getattr(collector, "_name", "")).startswith("dsd_tune:")
