"""Which CUDA graph vLLM replays for a batch: FULL, PIECEWISE or none, and over how many tokens once padded.

Follows vLLM's capture and dispatch, read in 0.24 to 0.33, for uniform decode batches: B requests of K+1 tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.release import Release

LADDER_PER_MODE = Release(0, 29)
"""Since 0.29 (vllm #53407) FULL and PIECEWISE graphs are looked up apart; before, the next size of either decided."""

SIZES_PER_K = Release(0, 29)
"""Since 0.29 (vllm #50488) the default capture sizes hold `n*(K+1)` for each K that the table reaches."""

SIZE_OF_FULL_BATCH = Release(0, 31)
"""Since 0.31 the default capture sizes of an engine without speculation hold `max_num_seqs`."""

DEFAULT_CEILING = 512
"""Largest capture size by default, in tokens; 1024 on compute capability 10.x since 0.28."""


class Runner(StrEnum):
    """vLLM's model runners."""

    V1 = "v1"
    V2 = "v2"


class Graph(StrEnum):
    """What one step runs."""

    FULL = "FULL"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"


class CudagraphMode(StrEnum):
    """vLLM's setting `cudagraph_mode`, under its own names."""

    NONE = "NONE"
    PIECEWISE = "PIECEWISE"
    FULL = "FULL"
    FULL_DECODE_ONLY = "FULL_DECODE_ONLY"
    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"

    @property
    def captures_decode_apart(self) -> bool:
        """Whether uniform decode batches have FULL graphs of their own."""
        return self in (CudagraphMode.FULL_DECODE_ONLY, CudagraphMode.FULL_AND_PIECEWISE)

    @property
    def has_full(self) -> bool:
        """Whether any FULL graph is captured."""
        return self.captures_decode_apart or self is CudagraphMode.FULL

    @property
    def mixed(self) -> Graph:
        """The graph for batches of any shape."""
        match self:
            case CudagraphMode.PIECEWISE | CudagraphMode.FULL_AND_PIECEWISE:
                return Graph.PIECEWISE
            case CudagraphMode.FULL:
                return Graph.FULL
            case _:
                return Graph.NONE


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """What decides the graphs. `table[b - 1]` is K at batch size b, None for a fixed K of `k_max`.

    `stated_ks` are the Ks as written in the table: 0.25 to 0.28 capture for them, reachable or not, clamped or
    not. `sizes` and `max_size` are the user's own settings in tokens, None where vLLM chooses.
    """

    release: Release
    runner: Runner
    max_num_seqs: int
    k_max: int
    table: tuple[int, ...] | None = None
    stated_ks: tuple[int, ...] = ()
    mode: CudagraphMode = CudagraphMode.FULL_AND_PIECEWISE
    sizes: tuple[int, ...] | None = None
    max_size: int | None = None
    max_num_batched_tokens: int = 8192
    ceiling: int = DEFAULT_CEILING

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.k_max < 0:
            raise ValueError(f"impossible: max_num_seqs {self.max_num_seqs}, K_max {self.k_max}")
        if self.table is not None and len(self.table) != self.max_num_seqs:
            raise ValueError(f"the table gives {len(self.table)} values for {self.max_num_seqs} batch sizes")

    @property
    def effective_mode(self) -> CudagraphMode:
        """Runner V1 captures one query length only, so under a table it gives FULL graphs up (vllm #52087)."""
        if self.table is not None and self.runner is Runner.V1 and self.mode.has_full:
            return CudagraphMode.PIECEWISE
        return self.mode

    @property
    def query_lengths(self) -> tuple[int, ...]:
        """Tokens a request for which uniform decode graphs are captured."""
        if self.table is None or self.runner is Runner.V1:
            return (self.k_max + 1,)
        ks = self.table if self.release >= SIZES_PER_K or not self.stated_ks else self.stated_ks
        return tuple(sorted({k + 1 for k in ks}))


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The graph of one step, and the tokens it runs over with padding."""

    graph: Graph
    tokens: int


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """One captured graph; None means: fits any number of requests, any query length."""

    graph: Graph
    tokens: int
    requests: int | None = None
    query_length: int | None = None

    def fits(self, batch_size: int, query_length: int) -> bool:
        """Whether it can serve this uniform batch; that its tokens suffice is known."""
        return (self.query_length is None or self.query_length == query_length) and (
            self.requests is None or self.requests >= batch_size
        )


class Dispatcher:
    """Answers for one engine. Everything is captured on construction, as vLLM does."""

    def __init__(self, settings: GraphSettings) -> None:
        self.settings = settings
        self.sizes = capture_sizes(settings)
        captured = tuple(_captured(settings, self.sizes))
        self.full = tuple(g for g in captured if g.graph is Graph.FULL)
        self.piecewise = tuple(g for g in captured if g.graph is Graph.PIECEWISE)
        apart = settings.release >= LADDER_PER_MODE or settings.runner is Runner.V1
        self._ladders = [_ladder(graphs) for graphs in ((self.full, self.piecewise) if apart else (captured,))]

    def dispatch(self, batch_size: int, k: int) -> Dispatch:
        """The graph for `batch_size` decoding requests that verify `k` drafts each.

        vLLM looks only at the next captured size, never further up (vllm #56136). Where that size belongs to
        another K, a batch that some larger graph would cover runs without.
        """
        tokens = batch_size * (k + 1)
        for sizes, graphs in self._ladders:
            step = bisect_left(sizes, tokens)
            if step < len(sizes):
                for captured in graphs[step]:
                    if captured.fits(batch_size, k + 1):
                        return Dispatch(captured.graph, captured.tokens)
        return Dispatch(Graph.NONE, tokens)

    def by_batch_size(self) -> tuple[Graph, ...]:
        """The graph at each batch size from 1 to `max_num_seqs`, with the K that the engine uses there."""
        settings = self.settings
        ks = settings.table or (settings.k_max,) * settings.max_num_seqs
        return tuple(self.dispatch(b, k).graph for b, k in enumerate(ks, start=1))


def capture_sizes(settings: GraphSettings) -> tuple[int, ...]:
    """Capture sizes in tokens, ascending: the user's own, or the default of this release."""
    if settings.mode is CudagraphMode.NONE:
        return ()
    budget = settings.max_num_batched_tokens
    if settings.sizes is not None:
        sizes = {size for size in settings.sizes if size <= budget}
    else:
        largest, for_decode = _default_range(settings)
        largest = min(largest, budget)
        sizes = {*_grid(largest), *(size for size in for_decode if size <= budget)}
        if budget <= largest:
            sizes.add(budget)
    return _rounded(settings, sorted(sizes))


def exact_sizes(settings: GraphSettings) -> tuple[int, ...]:
    """Capture sizes under which every batch of the table has a FULL graph: the default ones and each B*(K+1).

    For `cudagraph_capture_sizes`. Every size is captured once for each K, so they cost start-up time and memory.
    """
    ks = settings.table or (settings.k_max,) * settings.max_num_seqs
    needed = {b * (k + 1) for b, k in enumerate(ks, start=1)}
    return tuple(sorted(needed | set(capture_sizes(settings))))


def _default_range(settings: GraphSettings) -> tuple[int, list[int]]:
    """The largest size of the grid, and further sizes for decode batches; none if the user gave the largest."""
    if settings.max_size is not None:
        return settings.max_size, []
    widest = settings.k_max + 1
    largest = min(settings.max_num_seqs * widest * 2, settings.ceiling)
    if settings.k_max == 0:
        alone = settings.release >= SIZE_OF_FULL_BATCH and settings.max_num_seqs <= largest
        return largest, [settings.max_num_seqs] if alone else []
    if settings.release < SIZES_PER_K:
        return largest, []
    # The widest batch size at which each query length is used.
    widest_batch = {widest: settings.max_num_seqs}
    if settings.table is not None:
        widest_batch = {k + 1: b for b, k in enumerate(settings.table, start=1)}
    counts = ((q, n) for q, most in widest_batch.items() for n in _request_counts(min(most, settings.ceiling)))
    return largest, [n * q for q, n in counts if n * q <= largest]


def _grid(largest: int) -> Iterator[int]:
    yield from (size for size in (1, 2, 4) if size <= largest)
    yield from range(8, min(largest + 1, 256), 8)
    yield from range(256, largest + 1, 16)


def _request_counts(most: int) -> set[int]:
    return {*_grid(most), most}


def _rounded(settings: GraphSettings, sizes: list[int]) -> tuple[int, ...]:
    """Runner V1 with FULL decode graphs rounds every size up to a multiple of its one query length.

    vLLM refuses to start where none is left; here that is an engine without graphs.
    """
    q = settings.k_max + 1
    if settings.runner is Runner.V2 or not settings.effective_mode.has_full or q == 1 or not sizes:
        return tuple(sizes)
    largest = sizes[-1]
    rounded = {-(-size // q) * q for size in sizes}
    kept = sorted(size for size in rounded if size <= largest)
    return tuple(kept) or ((q,) if q <= largest else ())


def _captured(settings: GraphSettings, sizes: tuple[int, ...]) -> Iterator[CapturedGraph]:
    mode = settings.effective_mode
    if mode.captures_decode_apart:
        yield from _decode_graphs(settings, sizes)
    if mode.mixed is not Graph.NONE:
        for size in sizes:
            requests = min(size, settings.max_num_seqs) if mode.mixed is Graph.FULL else None
            yield CapturedGraph(mode.mixed, size, requests)


def _decode_graphs(settings: GraphSettings, sizes: tuple[int, ...]) -> Iterator[CapturedGraph]:
    """One graph for each size and query length, rounded up to whole requests; duplicates are captured once."""
    largest = min(sizes[-1], settings.max_num_seqs * (settings.k_max + 1)) if sizes else 0
    for q in settings.query_lengths:
        for tokens in sorted({-(-size // q) * q for size in sizes}):
            if tokens <= largest and tokens // q <= settings.max_num_seqs:
                yield CapturedGraph(Graph.FULL, tokens, tokens // q, q)


def _ladder(graphs: Iterable[CapturedGraph]) -> tuple[list[int], list[list[CapturedGraph]]]:
    """Captured sizes ascending, and the graphs of each; FULL before PIECEWISE, as they come."""
    rungs: dict[int, list[CapturedGraph]] = {}
    for captured in graphs:
        rungs.setdefault(captured.tokens, []).append(captured)
    sizes = sorted(rungs)
    return sizes, [rungs[size] for size in sizes]
