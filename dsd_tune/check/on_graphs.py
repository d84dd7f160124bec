"""Findings about CUDA graphs: which batch sizes of the table run without a FULL one, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dsd_tune.check import rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.on_table import compact
from dsd_tune.model.cudagraph import CudagraphMode, Dispatcher, Graph, GraphSettings, Runner, exact_sizes
from dsd_tune.records.finding import Finding

_SHOWN = 8
"""Stretches of batch sizes that a reason names before it only counts."""


def graph_settings(
    deployment: Deployment, k_max: int, dense: tuple[int, ...] | None, stated_ks: tuple[int, ...]
) -> GraphSettings:
    """What decides the graphs; `dense` is None for a fixed K."""
    return GraphSettings(
        release=deployment.release,
        runner=deployment.runner,
        max_num_seqs=deployment.max_num_seqs,
        k_max=k_max,
        table=dense,
        stated_ks=stated_ks,
        mode=CudagraphMode.NONE if deployment.cpu else deployment.cudagraph_mode,
        sizes=deployment.capture_sizes,
        max_size=deployment.max_capture_size,
        max_num_batched_tokens=deployment.max_num_batched_tokens or 8192,
    )


def on_graphs(deployment: Deployment, dispatcher: Dispatcher) -> Iterator[Finding]:
    """Findings for the graphs that vLLM would capture under a table."""
    settings = dispatcher.settings
    if deployment.cpu:
        return
    if settings.mode is CudagraphMode.NONE:
        yield Finding(
            rules.NO_GRAPHS,
            "With --enforce-eager or cudagraph_mode NONE every step is launched kernel by kernel, which costs most at "
            "small batch sizes.",
            "Leave it out, unless the table was measured like this.",
        )
        return
    yield from _on_capture_sizes(deployment)
    if settings.effective_mode is not settings.mode:
        yield Finding(
            rules.RUNNER_PIECEWISE,
            f"Model runner V1 turns {settings.mode} into PIECEWISE as soon as there is a table. A fixed K keeps its "
            "FULL graphs, and may win by that alone.",
            "Use model runner V2 (0.32 or later), or compare with a fixed K on the real server.",
        )
    elif settings.mode.has_full:
        yield from _misses(dispatcher)
    if deployment.lora and deployment.runner is Runner.V2 and len(settings.query_lengths) > 1:
        yield Finding(
            rules.LORA_GRAPHS,
            f"{len(dispatcher.full)} FULL graphs are captured for {len(settings.query_lengths)} values of K, and again "
            "for each LoRA case.",
            "Use fewer values of K, or give cudagraph_capture_sizes.",
        )


def _on_capture_sizes(deployment: Deployment) -> Iterator[Finding]:
    given, largest = deployment.capture_sizes, deployment.max_capture_size
    if given and largest is not None and max(given) != largest:
        yield Finding(
            rules.CAPTURE_CONFLICT,
            f"max_cudagraph_capture_size is {largest}, but the largest of cudagraph_capture_sizes is {max(given)}. "
            "vLLM refuses that.",
            "Leave max_cudagraph_capture_size out.",
        )
    if given is None and largest is not None and deployment.shows(rules.CEILING_ALONE):
        yield Finding(
            rules.CEILING_ALONE,
            f"max_cudagraph_capture_size {largest} without cudagraph_capture_sizes leaves vLLM's general grid, without "
            "the multiples of K+1 that it would add by itself. It counts tokens, not requests.",
            "Give cudagraph_capture_sizes instead, or neither.",
        )


def _misses(dispatcher: Dispatcher) -> Iterator[Finding]:
    stretches = [(graph, first, last) for graph, first, last in graph_stretches(dispatcher) if graph is not Graph.FULL]
    if not stretches:
        return
    missing = sum(last - first + 1 for _, first, last in stretches)
    settings = dispatcher.settings
    named = "; ".join(filter(None, (_named(stretches, graph) for graph in (Graph.PIECEWISE, Graph.NONE))))
    largest = max((captured.tokens for captured in dispatcher.full), default=0)
    yield Finding(
        rules.GRAPH_MISS,
        f"{missing} of {settings.max_num_seqs} batch sizes have no FULL graph: {named}. Each has batch size times K+1 "
        f"tokens. That exceeds the largest FULL graph of {largest} tokens, or the next larger graph belongs to another "
        "K, which vLLM does not look past.",
        f"Prefer Ks of 0, 1, 3 and 7, or capture each size: {_capture_flag(settings)}",
    )


def _capture_flag(settings: GraphSettings) -> str:
    wanted = exact_sizes(settings)
    if len(wanted) > 64:
        return f"{len(wanted)} sizes, in the field graphs.exact_sizes of --json."
    return f"--compilation-config '{compact({'cudagraph_capture_sizes': list(wanted)})}'"


def graph_stretches(dispatcher: Dispatcher) -> Iterator[tuple[Graph, int, int]]:
    """Neighbouring batch sizes with the same kind of graph, as graph, first and last."""
    numbered = enumerate(dispatcher.by_batch_size(), start=1)
    for graph, group in groupby(numbered, key=lambda pair: pair[1]):
        batch_sizes = [b for b, _ in group]
        yield graph, batch_sizes[0], batch_sizes[-1]


def _named(stretches: Sequence[tuple[Graph, int, int]], graph: Graph) -> str:
    mine = [f"{first}" if first == last else f"{first}-{last}" for kind, first, last in stretches if kind is graph]
    if not mine:
        return ""
    more = f" and {len(mine) - _SHOWN} more stretches" if len(mine) > _SHOWN else ""
    return f"{'eager' if graph is Graph.NONE else graph} at {', '.join(mine[:_SHOWN])}{more}"
