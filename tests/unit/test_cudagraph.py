from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any

import pytest

from dsd_tune.model.cudagraph import (
    CudagraphMode,
    Dispatch,
    Dispatcher,
    Graph,
    GraphSettings,
    Runner,
    capture_sizes,
    exact_sizes,
)
from dsd_tune.records.release import Release
from dsd_tune.records.table import Range, Table

DOCS_EXAMPLE = ((16, 5), (32, 4), (64, 3), (128, 1), (256, 0))
"""The EAGLE-3 example of vLLM's documentation, as last batch size and K of each range."""


def dense(ranges: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The lookup of ranges given as last batch size and K."""
    firsts = (1, *(last + 1 for last, _ in ranges[:-1]))
    return Table(tuple(Range(first, last, k) for first, (last, k) in zip(firsts, ranges, strict=True))).dense()


def a_server(ranges: tuple[tuple[int, int], ...], **changed: Any) -> GraphSettings:
    """vLLM 0.32 on model runner V2 with a table, and `changed` fields."""
    table = dense(ranges)
    fields = {"release": Release(0, 32), "runner": Runner.V2, "max_num_seqs": len(table), "k_max": max(table)}
    return GraphSettings(**{**fields, "table": table, **changed})


def a_fixed_server(k: int, max_num_seqs: int, **changed: Any) -> GraphSettings:
    """vLLM 0.32 on model runner V2 with a fixed K."""
    fields = {"release": Release(0, 32), "runner": Runner.V2, "max_num_seqs": max_num_seqs, "k_max": k}
    return GraphSettings(**{**fields, **changed})


def counts(settings: GraphSettings) -> tuple[int, int, int]:
    """Batch sizes with a PIECEWISE graph, batch sizes without one, FULL graphs captured."""
    dispatcher = Dispatcher(settings)
    seen = Counter(dispatcher.by_batch_size())
    return seen[Graph.PIECEWISE], seen[Graph.NONE], len(dispatcher.full)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (DOCS_EXAMPLE, (86, 0, 242)),
        (((8, 6), (32, 4), (128, 3)), (27, 0, 150)),
        (((16, 5), (64, 2), (256, 0)), (75, 0, 136)),
        (((64, 2), (256, 1)), (40, 0, 102)),
        (((32, 4), (256, 2)), (35, 86, 112)),
        (((16, 3), (32, 1), (64, 0)), (0, 0, 62)),
        (((64, 3), (128, 1), (256, 0)), (0, 0, 134)),
        (((16, 7), (64, 3), (128, 1), (256, 0)), (0, 0, 182)),
        (((32, 3), (256, 0)), (0, 0, 84)),
        (((32, 3), (256, 1)), (0, 0, 99)),
    ],
    ids=str,
)
def test_counts_misses_of_tables(ranges: tuple[tuple[int, int], ...], expected: tuple[int, int, int]) -> None:
    """Misses and captures under default sizes equal those counted with vLLM 0.32's own dispatcher."""
    assert counts(a_server(ranges)) == expected


@pytest.mark.parametrize(("k", "expected"), [(1, (0, 0)), (2, (2, 86)), (3, (0, 128)), (4, (2, 154)), (5, (2, 171))])
def test_counts_misses_of_a_fixed_k(k: int, expected: tuple[int, int]) -> None:
    """A fixed K runs out of the 512-token ceiling, so at 256 requests a K of 3 is eager for half of the batch sizes."""
    assert counts(a_fixed_server(k, 256))[:2] == expected


def test_captures_few_graphs_for_a_fixed_k() -> None:
    """A table of five Ks costs five times the graphs of a fixed K."""
    assert counts(a_fixed_server(5, 256))[2] == 48


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (CudagraphMode.FULL_DECODE_ONLY, (0, 86, 242)),
        (CudagraphMode.FULL, (0, 0, 56)),
        (CudagraphMode.PIECEWISE, (256, 0, 0)),
        (CudagraphMode.NONE, (0, 256, 0)),
    ],
)
def test_mode_decides_what_a_miss_costs(mode: CudagraphMode, expected: tuple[int, int, int]) -> None:
    """Without PIECEWISE graphs a miss is eager; FULL graphs for any shape never miss."""
    assert counts(a_server(DOCS_EXAMPLE, mode=mode)) == expected


def test_exact_sizes_leave_no_miss() -> None:
    """The sizes offered to the user, and the exact ones alone, give every batch size its FULL graph."""
    settings = a_server(DOCS_EXAMPLE)
    offered = a_server(DOCS_EXAMPLE, sizes=exact_sizes(settings))
    assert counts(offered) == (0, 0, 488)
    alone = tuple(sorted({b * (k + 1) for b, k in enumerate(dense(DOCS_EXAMPLE), start=1)}))
    assert counts(a_server(DOCS_EXAMPLE, sizes=alone)) == (0, 0, 384)


def test_runner_v1_gives_up_full_graphs_for_a_table() -> None:
    """The same K is FULL as a fixed K and PIECEWISE as a table on model runner V1."""
    fixed = a_fixed_server(3, 64, runner=Runner.V1)
    assert counts(fixed)[:2] == (0, 0)
    assert counts(a_server(((64, 3),), runner=Runner.V1)) == (64, 0, 0)


def test_runner_v1_rounds_sizes_to_its_one_query_length() -> None:
    """Model runner V1 with FULL graphs captures multiples of K+1 only, none beyond the largest size."""
    sizes = capture_sizes(a_fixed_server(2, 5, runner=Runner.V1, release=Release(0, 28)))
    assert sizes == (3, 6, 9, 18, 24)
    assert Dispatcher(a_fixed_server(2, 5, runner=Runner.V1, release=Release(0, 28))).dispatch(5, 2).graph is (
        Graph.PIECEWISE
    )


def test_older_releases_capture_for_the_widest_k_only() -> None:
    """Before 0.29 sizes are not made for each K and both kinds of graph share a ladder, so more batch sizes miss."""
    ranges = ((32, 4), (256, 2))
    new, old = (counts(a_server(ranges, release=Release(0, minor))) for minor in (29, 28))
    assert new == (35, 86, 112)
    assert old[0] + old[1] > new[0] + new[1]
    assert old[1] > new[1], "a miss was eager where the next size had graphs of another K only"


def test_older_releases_capture_what_is_written() -> None:
    """Before 0.29 Ks that are never reached, or clamped, cost graphs too."""
    settings = a_server(((8, 3), (16, 1)), release=Release(0, 28), stated_ks=(3, 1, 9))
    assert settings.query_lengths == (2, 4, 10)
    assert a_server(((8, 3), (16, 1)), stated_ks=(3, 1, 9)).query_lengths == (2, 4)


def test_padding_is_part_of_the_answer() -> None:
    """A batch runs over the tokens of the graph that serves it."""
    dispatcher = Dispatcher(a_fixed_server(3, 64))
    assert dispatcher.dispatch(3, 3) == Dispatch(Graph.FULL, 16)
    assert dispatcher.dispatch(4, 3) == Dispatch(Graph.FULL, 16)
    assert dispatcher.dispatch(200, 3) == Dispatch(Graph.NONE, 800)


def test_unknown_k_is_never_full() -> None:
    """A K that the table does not reach has no FULL graph of its own."""
    dispatcher = Dispatcher(a_server(((32, 3), (64, 0))))
    assert {dispatcher.dispatch(b, 2).graph for b in range(1, 65)} == {Graph.PIECEWISE}


@pytest.mark.parametrize(
    ("minor", "last"),
    [(30, [48, 56, 64, 72, 80, 88, 96]), (31, [48, 50, 56, 64, 72, 80, 88, 96])],
)
def test_engine_without_speculation_captures_its_full_batch(minor: int, last: list[int]) -> None:
    """Since 0.31, max_num_seqs is a capture size of an engine without speculation even off the grid."""
    sizes = capture_sizes(a_fixed_server(0, 50, release=Release(0, minor)))
    assert list(sizes[-len(last) :]) == last


def test_users_ceiling_takes_sizes_of_each_k_away() -> None:
    """max_cudagraph_capture_size alone leaves the grid without the multiples of K+1."""
    assert 300 not in capture_sizes(a_fixed_server(5, 256, max_size=512))
    assert 240 in capture_sizes(a_fixed_server(5, 256))
    assert max(capture_sizes(a_fixed_server(5, 256, max_size=100))) == 96


def test_no_capture_size_exceeds_the_token_budget() -> None:
    """max_num_batched_tokens cuts all sizes, the user's too, and is a size itself where it cuts the default."""
    assert max(capture_sizes(a_fixed_server(3, 256, max_num_batched_tokens=100))) == 100
    assert capture_sizes(a_fixed_server(3, 256, sizes=(4, 400), max_num_batched_tokens=100)) == (4,)


def test_impossible_settings_are_refused() -> None:
    """A lookup of another length than max_num_seqs is a mistake of the caller."""
    with pytest.raises(ValueError, match="3 values for 4"):
        a_server(((3, 1),), max_num_seqs=4)


def test_default_sizes_ascend_without_duplicates() -> None:
    """Capture sizes are strictly ascending for any table and release."""
    for minor in (24, 28, 29, 33):
        sizes = capture_sizes(a_server(DOCS_EXAMPLE, release=Release(0, minor)))
        assert list(sizes) == sorted(set(sizes))
        assert list(accumulate(sizes, max)) == list(sizes)
