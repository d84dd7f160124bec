"""Where the runtime enters vLLM: when it completes its configuration, and when its engine builds a scheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from dsd_tune.errors import ProfileMismatch
from dsd_tune.runtime.application import Application
from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.meter import Meter
from dsd_tune.runtime.options import LOG, Options, say
from dsd_tune.runtime.renewal import Renewal
from dsd_tune.runtime.steering import steer


@cache
def install(options: Options) -> None:
    """Wrap methods of vLLM's, once, so that `options` take effect in this process."""
    from vllm.config import SchedulerConfig, VllmConfig

    # Only where a server is put together, and that is what loads plugins there.
    front = sys.modules.get("vllm.engine.arg_utils")
    if front is not None:
        starting = Starting(options)
        create, complete = front.EngineArgs.create_engine_config, VllmConfig.__post_init__
        front.EngineArgs.create_engine_config = lambda *args, **kw: starting.create(partial(create, *args, **kw))
        VllmConfig.__post_init__ = lambda config: starting.complete(config, partial(complete, config))
    choose = SchedulerConfig.get_scheduler_cls
    SchedulerConfig.get_scheduler_cls = lambda config: steered(choose(config), options)


@cache
def measure(options: Options) -> None:
    """Let vLLM's statistics also go into metrics of ours. Called where there is a front, which is what loads them."""
    from vllm.v1.metrics.loggers import AggregateStatLoggerBase, StatLoggerManager

    class Logger(AggregateStatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
            self._meter = Meter(vllm_config, engine_indexes, options)

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
        ) -> None:
            self._meter.record(scheduler_stats, iteration_stats, engine_idx)

        def log_engine_initialized(self) -> None:
            pass

    initialise = StatLoggerManager.__init__

    def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it is one)
        initialise(self, vllm_config, *args, **kwargs)
        if vllm_config.speculative_config is not None:
            with options.harmless("has no metrics."):
                self.stat_loggers.append(Logger(vllm_config, self.engine_indexes))

    StatLoggerManager.__init__ = __init__


class Starting:
    """Puts the profile's table into vLLM's configuration while CUDA graphs still depend on it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._creating = False

    def create(self, create: Callable[[], Any]) -> Any:
        """Let vLLM turn its arguments into a configuration. Those made elsewhere are views of one that is complete.

        Raises:
            Whatever vLLM raises, and DsdTuneError if the options are strict and the profile cannot be applied.
        """
        self._creating = True
        try:
            config = create()
        finally:
            self._creating = False
        with self._options.harmless("has no metrics."):
            measure(self._options)
        return config

    def complete(self, config: Any, complete: Callable[[], None]) -> None:
        """Let vLLM complete a configuration, with the table in it if it needs one and the profile fits.

        Raises:
            As `create`.
        """
        put = False
        with self._options.harmless():
            put = self._creating and self._put_table(config)
        complete()
        if put and config.speculative_config.num_speculative_tokens_per_batch_size is None:
            with self._options.harmless():
                raise ProfileMismatch("vLLM dropped its table.", "vLLM's own warning says why.")

    def _put_table(self, config: Any) -> bool:
        speculation = config.speculative_config
        if speculation is None:
            raise ProfileMismatch("There is no speculation to apply it to.", "Give vLLM a --speculative-config.")
        if speculation.num_speculative_tokens_per_batch_size is not None:
            # The user's own stays; whether the profile's Ks are in it is for the scheduler's side to say.
            return False
        table = Application.of(config, self._options).table_to_start_with()
        speculation.num_speculative_tokens_per_batch_size = [tuple(entry) for entry in table.as_lists()]
        return True


def steered(scheduler_class: type, options: Options) -> type:
    """A scheduler class that hands its instances over to the profile's policy."""

    class Steered(scheduler_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            with options.harmless():
                attach(self, options)

    return Steered


def attach(scheduler: Any, options: Options) -> None:
    """Let the profile's policy set K of a scheduler that has a table, now and whenever the file is replaced.

    Raises:
        DsdTuneError: the profile cannot be applied.
    """
    lookup = scheduler.dynamic_sd_lookup
    if lookup is None:
        return
    engine_ks = frozenset(lookup[1:])

    def load() -> Guard:
        application = Application.of(scheduler.vllm_config, options)
        guard = application.guard(engine_ks, say)
        LOG.info("dsd-tune: %s is applied: %s", options.profile, application)
        return guard

    # Before the file is read: one that is replaced meanwhile is another than the renewal saw.
    renewal = Renewal(options.profile, load, options.refuse_new)
    steer(scheduler, load(), say, renewal.poll)
