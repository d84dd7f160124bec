"""Our reading of tables and our model of CUDA-graph dispatch against the installed vLLM's own; no engine starts."""

from __future__ import annotations

import math
import os
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dsd_tune.check.reading import Lookup, Refusal, Rejected, lax_int, read
from dsd_tune.model.cudagraph import CudagraphMode, Dispatcher, Graph, GraphSettings, Runner, capture_sizes
from dsd_tune.records.release import Release

pytestmark = pytest.mark.vllm

TABLES = int(os.environ.get("DSD_TUNE_RANDOM_TABLES", "2500"))
"""Random tables to compare; the full examination takes 10,000."""

ENGINES = TABLES // 50
"""Random graph settings to compare; each is dispatched at every batch size and K."""

ODD = [0, -1, 1, 2, 10**6, "3", " 4 ", "1_0", "x", 2.0, 2.5, True, None, [1], "3.0", "", math.inf, 1e18, 1e19]
"""What may stand where a number belongs."""

VLLM_SAYS = {
    Refusal.EMPTY: "must not be empty",
    Refusal.NOT_POSITIVE: "must be positive",
    Refusal.REVERSED: "start must be <= end",
    Refusal.NEGATIVE_K: "must be >= 0",
    Refusal.OVERLAP: "non-overlapping",
    Refusal.NOT_FROM_ONE: "must start at 1",
}


@pytest.fixture(scope="module")
def rng() -> random.Random:
    """A generator whose seed can be set from outside, to look at other tables."""
    return random.Random(int(os.environ.get("DSD_TUNE_SEED", "0")))


@pytest.fixture(scope="module")
def release() -> Release:
    """The installed vLLM."""
    from vllm import __version__

    return Release.parse(__version__)


def a_table(rng: random.Random, max_num_seqs: int) -> Any:
    """A table that is right about as often as wrong, in every way that its rules know."""
    entries: list[Any] = []
    at = 1
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 6])):
        first = at + rng.choice([0, 0, 0, 0, 0, rng.randint(1, 9)])
        last = first + rng.choice([0, rng.randint(0, max(1, max_num_seqs // 2))])
        entries.append([first, last, rng.choice([0, 1, 2, 3, 4, 5, 7, 9])])
        at = last + 1
    if rng.random() < 0.45:
        spoil(rng, entries)
    return entries if rng.random() < 0.97 else rng.choice([{"1-16": 3}, "[[1,2,3]]", 3, {}, True, [entries], 1.5])


def spoil(rng: random.Random, entries: list[Any]) -> None:
    """Break the entries once or twice, or only make them look odd."""
    for _ in range(rng.choice([1, 1, 2])):
        if not entries:
            return
        at = rng.randrange(len(entries))
        entry = list(entries[at]) if isinstance(entries[at], list) and len(entries[at]) == 3 else [1, 1, 1]
        match rng.randrange(7):
            case 0:
                rng.shuffle(entries)
            case 1:
                entries.append(rng.choice([entry, 1]))
            case 2 | 3:
                entry[rng.randrange(3)] = rng.choice(ODD)
                entries[at] = entry
            case 4:
                entries[at] = rng.choice([entry[:2], [*entry, 1], entry * 2, {"a": 1}, "123", tuple(entry), []])
            case 5:
                entries[at] = [entry[1], entry[0], *entry[2:]]
            case _:
                entry[0] = rng.choice([1, 2, 5])
                entries[at] = entry


def test_reads_every_table_as_vllm_does(rng: random.Random) -> None:
    """A table is accepted, refused by the same rule at the same time, and looked up as in vLLM."""
    from pydantic import TypeAdapter, ValidationError
    from vllm.config.speculative import SpeculativeConfig
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    field = next(f for f in SpeculativeConfig.__pydantic_fields__ if f == "num_speculative_tokens_per_batch_size")
    adapter = TypeAdapter(SpeculativeConfig.__pydantic_fields__[field].annotation)
    verdicts = {Lookup: 0, Rejected: 0}
    for _ in range(TABLES):
        max_num_seqs, k_max = rng.choice([1, 2, 8, 33, 64, 256]), rng.randint(1, 8)
        raw = a_table(rng, max_num_seqs)
        ours = read(raw, k_max, max_num_seqs)
        verdicts[type(ours)] += 1
        try:
            parsed = adapter.validate_python(raw)
        except ValidationError:
            assert isinstance(ours, Rejected), raw
            assert ours.refusal in (Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS), raw
            continue
        if isinstance(ours, Rejected):
            with pytest.raises(ValueError, match=VLLM_SAYS[ours.refusal]):
                build_dynamic_sd_schedule_lookup(parsed, max_num_seqs, k_max)
        else:
            assert [0, *ours.dense()] == build_dynamic_sd_schedule_lookup(parsed, max_num_seqs, k_max), raw
            assert ours.canonical().dense() == ours.dense()
    assert min(verdicts.values()) > TABLES / 5, "the tables must exercise both verdicts"


@pytest.mark.parametrize(
    "table", [[], [[1, 8, 3], [9, 16, 0]], [[2, 8, 3]], [[1, 8, 9]], [[1, 8]], {"1-8": 3}], ids=repr
)
@pytest.mark.parametrize("k_max", [3, "3", 3.0, True, 0, -1, "x", 2.5, None], ids=repr)
def test_config_is_parsed_as_vllm_parses_it(table: Any, k_max: Any) -> None:
    """Whether vLLM's configuration takes table and num_speculative_tokens is known beforehand."""
    from pydantic import ValidationError
    from vllm.config.speculative import SpeculativeConfig

    config = {"method": "ngram", "num_speculative_tokens": k_max, "num_speculative_tokens_per_batch_size": table}
    ours = read(table, 3, 16)
    late = not isinstance(ours, Rejected) or ours.refusal not in (Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS)
    number = lax_int(k_max)
    try:
        SpeculativeConfig(**config)
    except (ValidationError, ValueError):
        parsed = False
    else:
        parsed = True
    assert parsed == (late and number is not None and number > 0)


def test_numbers_are_read_as_vllm_reads_them() -> None:
    """What counts as a whole number is decided as vLLM's configuration decides it."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(int)
    odd = [True, 3.0, -0.0, 3.5, 1e15, 1e18, 1e19, -1e19, math.inf, math.nan, None, [3], {}, 10**30, -(2**63) - 1]
    words = "3, 3 ,+3,-3,3.0,3.00,3.,3.5,1_000,_1,1__0,003,,  ,0x1,1e3,٣,3\n,+ 3,--3,1_0.0,1.0_0,-3.0,.0,0.0,3 .0,1_"
    for value in [*odd, *words.split(","), "9" * 4300, "9" * 4301, "\u00a03", "-0"]:
        try:
            theirs = adapter.validate_python(value)
        except ValidationError:
            theirs = None
        assert lax_int(value) == theirs, value


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
