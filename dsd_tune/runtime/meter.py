"""Counts every step that a server's front hears of, and compares it with the profile."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from dsd_tune.runtime.application import Application
from dsd_tune.runtime.expectation import Expectation
from dsd_tune.runtime.metering import StepReader
from dsd_tune.runtime.metrics import Exporter
from dsd_tune.runtime.options import Options, say
from dsd_tune.runtime.renewal import Renewal


class Meter:
    """Takes what vLLM's engines report after each step. K is set elsewhere; here it is read off the drafts."""

    def __init__(self, config: Any, engines: list[int], options: Options) -> None:
        self._exporter: Exporter | None = Exporter(str(config.model_config.served_model_name), engines)
        # Of several API servers, vLLM tells one about each step.
        alone = getattr(config.parallel_config, "_api_process_count", 1) == 1
        self._readers = {engine: StepReader(hears_all=alone) for engine in engines}
        self._config, self._options = config, options
        # Before the file is read: one that is replaced meanwhile is another than the renewal saw.
        self._renewal = Renewal(options.profile, self._expect, self._refuse)
        self._expectation = Expectation(None)
        # Should it not apply, whoever was to put its table in has said why.
        with suppress(Exception):
            self._expectation = self._expect()
        self._exporter.show(self._expectation.state)

    def record(self, scheduler: Any, iteration: Any, engine: int) -> None:
        """Count the step that vLLM's `SchedulerStats` and `IterationStats` describe. Never raises."""
        if self._exporter is None or scheduler is None:
            return
        try:
            self._expectation = self._renewal.poll() or self._expectation
            self._exporter.show(self._expectation.state)
            step = self._readers[engine].read(scheduler, iteration, time.monotonic())
            if step is not None:
                self._exporter.export(engine, step, self._expectation)
        except Exception as error:  # noqa: BLE001 (nothing may reach the server)
            self._exporter = None
            say(f"no more metrics, this vLLM's statistics are not as expected: {error!r}")

    def _expect(self) -> Expectation:
        application = Application.of(self._config, self._options)
        started_with = self._config.speculative_config.num_speculative_tokens_per_batch_size or ()
        # The engine refuses what this refuses.
        application.guard(frozenset(k for _, _, k in started_with), say)
        return Expectation(application.profile)

    def _refuse(self, _error: Exception) -> None:
        """The engine says why, and goes on as before; so do the comparisons."""
        self._expectation.refused = True
