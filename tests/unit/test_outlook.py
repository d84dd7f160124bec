from typing import Any

import pytest
from builders import a_manifest, a_request, an_environment

from dsd_tune.cli.graphs import outlook
from dsd_tune.engines.vllm_facts import sweep_table
from dsd_tune.model.cudagraph import CudagraphMode, Dispatcher, Graph, GraphSettings, Runner, capture_sizes
from dsd_tune.model.outlook import Outlook
from dsd_tune.records.environment import GraphUse
from dsd_tune.records.release import Release
from dsd_tune.records.run import Manifest
from dsd_tune.records.table import Range, Table

SIZES = (1, 2, 4, 8, 16, 32, 64)
KS = (0, 1, 2, 3, 4, 5)
MISSING = Table.from_dense([4] * 6 + [2] * 15 + [0] * 43)
CHAIN = Table.from_dense([3] * 8 + [1] * 16 + [0] * 40)


def an_engine(**changed: Any) -> GraphSettings:
    """vLLM 0.32 on model runner V2, its table not yet chosen, with `changed` fields."""
    return GraphSettings(**{"release": Release(0, 32), "runner": Runner.V2, "max_num_seqs": 64, "k_max": 5, **changed})


def a_swept(**changed: Any) -> GraphSettings:
    """The same engine under the table of a sweep."""
    dense = Table(tuple(Range(*entry) for entry in sweep_table(KS, 64))).dense()
    return an_engine(table=dense, stated_ks=KS, **changed)


def a_measured_manifest(flags: tuple[str, ...] = (), **environment: Any) -> Manifest:
    """The manifest of a sweep on a GPU, with these engine flags and fields of its environment."""
    graphs = GraphUse("FULL_AND_PIECEWISE", capture_sizes(a_swept()))
    fields = {"runner": "v2", "vllm_version": "0.32.0", "device": "cuda", "graphs_dsd": graphs, **environment}
    request = a_request(batch_sizes=SIZES, ks=KS, max_num_seqs=64, engine_flags=flags)
    return a_manifest(request=request, environment=an_environment(**fields))


def test_a_table_of_other_ks_misses_graphs() -> None:
    """Ks of 4 and 2 lack FULL graphs at batch sizes where the sweep's engine had them; 3, 1 and 0 have theirs."""
    graphs = Outlook(an_engine(), a_swept(), SIZES)
    assert graphs.misses(MISSING)
    assert not graphs.misses(CHAIN)


def test_what_was_measured_without_a_graph_misses_none() -> None:
    """On model runner V1 every table runs PIECEWISE, as the sweep did: the price is in the numbers."""
    v1 = {"runner": Runner.V1}
    assert Outlook(an_engine(**v1), a_swept(**v1), SIZES).misses(MISSING) == ()


def test_beyond_the_largest_capture_nothing_is_missed() -> None:
    """Above the sweep's largest capture size steps were eager there, too."""
    small = tuple(range(1, 17))
    graphs = Outlook(an_engine(sizes=small), a_swept(sizes=small), SIZES)
    assert all(b * (MISSING.k_at(b) + 1) <= 16 for b in graphs.misses(MISSING))


def test_one_k_for_all_batch_sizes_is_no_table() -> None:
    """A constant table is deployed as a fixed K, whose graphs are captured for that K alone."""
    assert Outlook(an_engine(), a_swept(), SIZES).misses(Table.from_dense([2] * 64)) == ()


@pytest.mark.parametrize("mode", [CudagraphMode.FULL_AND_PIECEWISE, CudagraphMode.FULL_DECODE_ONLY])
@pytest.mark.parametrize(
    "table", [MISSING, Table.from_dense([5] * 16 + [4] * 16 + [2] * 32), Table.from_dense([1] * 3 + [4] * 61)]
)
def test_the_sizes_given_leave_no_miss(table: Table, mode: CudagraphMode) -> None:
    """Under the sizes given each step runs what was measured, and vLLM's own sizes are among them."""
    graphs = Outlook(an_engine(mode=mode), a_swept(mode=mode), SIZES)
    sizes = graphs.mending_sizes(table)
    deployed = an_engine(mode=mode, k_max=table.k_max, table=table.dense(), sizes=sizes)
    assert set(Dispatcher(deployed).by_batch_size()) == {Graph.FULL}
    assert set(capture_sizes(an_engine(mode=mode, k_max=table.k_max, table=table.dense()))) < set(sizes)
    assert graphs.misses(table, sizes) == ()


def test_no_sizes_where_none_are_needed() -> None:
    """A table without misses leaves the choice of sizes to vLLM."""
    assert Outlook(an_engine(), a_swept(), SIZES).mending_sizes(CHAIN) == ()


@pytest.mark.parametrize("chosen", [{"sizes": (1, 2, 4, 8, 16)}, {"max_size": 64}], ids=str)
def test_sizes_that_the_user_chose_are_kept(chosen: dict[str, Any]) -> None:
    """Where the user named sizes or the largest of them, none are added."""
    graphs = Outlook(an_engine(**chosen), a_swept(), SIZES)
    assert graphs.misses(MISSING)
    assert graphs.mending_sizes(MISSING) == ()


def test_sizes_beyond_the_token_budget_help_nothing() -> None:
    """A step with more tokens than vLLM schedules at once gets no graph by any size."""
    graphs = Outlook(an_engine(max_num_batched_tokens=16), a_swept(), SIZES)
    assert graphs.mending_sizes(MISSING) == ()


def test_a_manifest_tells_what_will_be_captured() -> None:
    """Release, runner, mode and capture sizes of the environment, and the flags of the request, tell the graphs."""
    graphs = outlook(a_measured_manifest())
    assert graphs
    assert graphs.misses(MISSING) == Outlook(an_engine(), a_swept(), SIZES).misses(MISSING)
    assert graphs.mending_sizes(MISSING)


@pytest.mark.parametrize(
    "flags",
    [
        ("--cudagraph-capture-sizes", "1", "2", "4", "8"),
        ("-cc.max_cudagraph_capture_size=64",),
        ("--compilation-config", '{"cudagraph_capture_sizes": [1, 2, 4]}'),
    ],
)
def test_a_manifest_with_sizes_of_the_users_gets_no_others(flags: tuple[str, ...]) -> None:
    """However the user's flags name sizes, they are the user's to change."""
    graphs = outlook(a_measured_manifest(flags))
    assert graphs
    assert graphs.mending_sizes(MISSING) == ()


@pytest.mark.parametrize(
    "environment",
    [
        {"graphs_dsd": GraphUse("NONE", ())},
        {"runner": "simulated"},
        {"vllm_version": "none"},
        {"graphs_dsd": GraphUse("SOMETHING_NEW", (1, 2))},
    ],
    ids=str,
)
def test_nothing_is_foretold_of_an_engine_that_is_not_known(environment: dict[str, Any]) -> None:
    """Without CUDA graphs, or under a runner, version or mode that is not known, there is no outlook."""
    assert outlook(a_measured_manifest(**environment)) is None


def test_flags_that_are_not_understood_foretell_nothing() -> None:
    """A flag that vLLM took and that cannot be read here is no error of the fit."""
    assert outlook(a_measured_manifest(("--compilation-config", "{mode: 3}"))) is None
