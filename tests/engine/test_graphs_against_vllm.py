"""Our model of CUDA-graph dispatch, and the capture sizes that follow from it, against vLLM's own; no engine starts."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dsd_tune.engines.vllm_facts import sweep_table
from dsd_tune.model.cudagraph import CudagraphMode, Dispatcher, Graph, GraphSettings, Runner, capture_sizes
from dsd_tune.model.outlook import Outlook
from dsd_tune.records.release import Release
from dsd_tune.records.table import Range, Table

pytestmark = pytest.mark.vllm

ENGINES = int(os.environ.get("DSD_TUNE_RANDOM_TABLES", "2500")) // 50
"""Random graph settings to compare; each is dispatched at every batch size and K."""


@pytest.fixture(scope="module")
def rng() -> random.Random:
    """A generator whose seed can be set from outside, to look at other tables."""
    return random.Random(int(os.environ.get("DSD_TUNE_SEED", "0")))


@pytest.fixture(scope="module")
def release() -> Release:
    """The installed vLLM."""
    from vllm import __version__

    return Release.parse(__version__)


def a_lookup(rng: random.Random, max_num_seqs: int, k_max: int) -> tuple[int, ...]:
    """A dense lookup of a few ranges that reaches `k_max`."""
    cuts = sorted(rng.sample(range(1, max_num_seqs), min(rng.randint(0, 4), max_num_seqs - 1)))
    ks = [k_max, *(rng.randint(0, k_max) for _ in cuts)]
    rng.shuffle(ks)
    ends = [*cuts, max_num_seqs]
    return tuple(k for k, (a, b) in zip(ks, zip([0, *cuts], ends, strict=True), strict=True) for _ in range(a, b))


def some_settings(rng: random.Random, release: Release, runner: Runner) -> GraphSettings:
    """An engine as users start them: mostly default sizes, at times their own."""
    max_num_seqs, k_max = rng.choice([1, 2, 5, 16, 48, 64, 100, 128, 256, 300]), rng.choice([1, 2, 3, 4, 5, 7])
    table = a_lookup(rng, max_num_seqs, k_max) if rng.random() < 0.8 else None
    mode = rng.choice([*CudagraphMode, CudagraphMode.FULL_AND_PIECEWISE])
    sizes = tuple(sorted(rng.sample(range(k_max + 1, 600), rng.randint(1, 40)))) if rng.random() < 0.25 else None
    largest = rng.choice([None, None, 64, 100, 700]) if sizes is None else None
    return GraphSettings(
        release, runner, max_num_seqs, k_max, table, (), mode, sizes, largest, rng.choice([256, 2048, 8192])
    )


def vllm_config(settings: GraphSettings) -> Any:
    """As much of vLLM's configuration as its own methods read, after they have chosen mode and capture sizes."""
    from vllm.config import CUDAGraphMode, VllmConfig
    from vllm.config.compilation import CompilationConfig

    ranges = None
    if settings.table is not None:
        ranges = [[b, b, k] for b, k in enumerate(settings.table, start=1)]
    compilation = SimpleNamespace(
        cudagraph_mode=CUDAGraphMode[settings.mode.name],
        cudagraph_capture_sizes=list(settings.sizes) if settings.sizes else None,
        max_cudagraph_capture_size=settings.max_size,
        compile_sizes=None,
        cudagraph_specialize_lora=True,
        is_attention_compiled_piecewise=lambda: True,
    )
    compilation.post_init_cudagraph_sizes = partial(CompilationConfig.post_init_cudagraph_sizes, compilation)
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(
            max_num_seqs=settings.max_num_seqs, max_num_batched_tokens=settings.max_num_batched_tokens
        ),
        speculative_config=SimpleNamespace(
            num_speculative_tokens_per_batch_size=ranges,
            uses_dynamic_speculative_decoding=lambda: ranges is not None,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        lora_config=None,
        num_speculative_tokens=settings.k_max,
        uniform_decode_query_len=settings.k_max + 1,
        performance_mode="balanced",
        use_v2_model_runner=settings.runner is Runner.V2,
    )
    VllmConfig._maybe_override_dynamic_sd_cudagraph_mode(config)
    VllmConfig._set_cudagraph_sizes(config)
    if settings.runner is Runner.V1 and config.compilation_config.cudagraph_mode.decode_mode() == CUDAGraphMode.FULL:
        CompilationConfig.adjust_cudagraph_sizes_for_spec_decode(compilation, settings.k_max + 1)
    return config


def v2_dispatch(config: Any) -> Any:
    """The dispatch of model runner V2, as a function of batch size and query length."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    manager = CudaGraphManager(
        config, "cpu", config.compilation_config.cudagraph_mode, decode_query_len=config.num_speculative_tokens + 1
    )
    manager._graphs_captured = True

    def dispatch(batch_size: int, q: int) -> tuple[str, int]:
        found = manager.dispatch(batch_size, batch_size * q, q, 0)
        return found.cg_mode.name, found.num_tokens

    dispatch.captured = {  # type: ignore[attr-defined]
        mode.name: len(found) for mode, found in manager._capture_descs.items()
    }
    return dispatch


def v1_dispatch(config: Any) -> Any:
    """The dispatch of model runner V1, as a function of batch size and query length."""
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher

    dispatcher = CudagraphDispatcher(config)
    widest = config.num_speculative_tokens + 1
    dispatcher.initialize_cudagraph_keys(config.compilation_config.cudagraph_mode, widest)

    def dispatch(batch_size: int, q: int) -> tuple[str, int]:
        mode, found = dispatcher.dispatch(batch_size * q, uniform_decode=q == widest)
        return mode.name, found.num_tokens

    dispatch.captured = {  # type: ignore[attr-defined]
        mode.name: len(keys) for mode, keys in dispatcher.cudagraph_keys.items() if keys
    }
    return dispatch


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a graph manager asks of a GPU before it captures anything."""
    from vllm.platforms import current_platform
    from vllm.v1.worker.gpu import cudagraph_utils

    monkeypatch.setattr(cudagraph_utils, "get_pp_group", lambda: SimpleNamespace(is_first_rank=True, is_last_rank=True))
    monkeypatch.setattr(type(current_platform), "get_global_graph_pool", lambda self: None, raising=False)
    monkeypatch.setattr(
        type(current_platform), "is_device_capability_family", classmethod(lambda cls, *_: False), raising=False
    )


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("runner", list(Runner))
def test_dispatches_every_batch_as_vllm_does(runner: Runner, rng: random.Random, release: Release) -> None:
    """For each engine, batch size and K, graph and padded tokens equal those of vLLM's own dispatcher."""
    seen: set[str] = set()
    for _ in range(ENGINES):
        settings = some_settings(rng, release, runner)
        try:
            config = vllm_config(settings)
        except ValueError:
            # Runner V1 refuses to start where no size is left after rounding.
            assert capture_sizes(settings) == ()
            continue
        theirs = (v2_dispatch if runner is Runner.V2 else v1_dispatch)(config)
        ours = Dispatcher(settings)
        assert list(ours.sizes) == config.compilation_config.cudagraph_capture_sizes, settings
        assert len(ours.full) == theirs.captured.get("FULL", 0), settings
        assert len(ours.piecewise) == theirs.captured.get("PIECEWISE", 0), settings
        for k in range(settings.k_max + 1):
            for batch_size in range(1, settings.max_num_seqs + 1):
                found = ours.dispatch(batch_size, k)
                expected = theirs(batch_size, k + 1)
                assert (found.graph.value, found.tokens) == expected, (settings, batch_size, k)
                seen.add(found.graph.value)
    assert seen == {graph.value for graph in Graph}, "every kind of graph must occur"


@pytest.mark.usefixtures("no_gpu")
def test_the_sizes_emitted_keep_every_graph_in_vllm(rng: random.Random, release: Release) -> None:
    """Under the capture sizes given, vLLM's own dispatcher runs FULL graphs wherever the sweep's engine had them."""
    ks, mended = (0, 1, 2, 3, 4, 5), 0
    for _ in range(ENGINES // 5):
        engine = GraphSettings(release, Runner.V2, rng.choice([16, 48, 64, 100]), ks[-1])
        swept = Table(tuple(Range(*entry) for entry in sweep_table(ks, engine.max_num_seqs))).dense()
        measured = replace(engine, table=swept)
        table = Table.from_dense(a_lookup(rng, engine.max_num_seqs, rng.choice([2, 3, 4, 5])))
        anchors = tuple(b for b in (1, 2, 4, 8, 16, 32, 64) if b < engine.max_num_seqs)
        sizes = Outlook(engine, measured, (*anchors, engine.max_num_seqs)).mending_sizes(table)
        if not sizes:
            continue
        mended += 1
        theirs = v2_dispatch(vllm_config(replace(engine, k_max=table.k_max, table=table.dense(), sizes=sizes)))
        before = v2_dispatch(vllm_config(measured))
        for batch_size in anchors:
            q = table.k_at(batch_size) + 1
            assert theirs(batch_size, q)[0] == "FULL" or before(batch_size, q)[0] != "FULL", (table, batch_size)
    assert mended, "some table must need sizes"
