import math
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any

import pytest
from builders import a_block, a_request, an_environment
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import GraphUse
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell, Phase, PromptCounts
from dsd_tune.records.profile import Verdict
from dsd_tune.records.prompt import Prompt
from dsd_tune.records.table import Range, Table
from dsd_tune.records.visit import Visit

dense = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(dense)
def test_table_says_the_same_as_the_dense_list(ks: list[int]) -> None:
    """A table built from one K a batch size gives back exactly those, densely and one by one."""
    table = Table.from_dense(ks)
    assert table.dense() == tuple(ks)
    assert [table.k_at(b) for b in range(1, len(ks) + 1)] == ks
    assert table.max_num_seqs == len(ks)


@given(dense)
def test_table_is_as_short_as_it_can_be(ks: list[int]) -> None:
    """A table has one range more than the dense list has changes, and its summary agrees with the list."""
    table = Table.from_dense(ks)
    assert len(table.ranges) == 1 + sum(a != b for a, b in pairwise(ks))
    assert table.is_constant == (len(set(ks)) == 1)
    assert (table.ks, table.k_max) == (frozenset(ks), max(ks))
    assert table.as_lists() == [[r.first, r.last, r.k] for r in table.ranges]


@pytest.mark.parametrize("batch_size", [0, 5])
def test_table_claims_nothing_outside_its_ranges(batch_size: int) -> None:
    """A batch size that the table does not cover is an error, not a guess."""
    with pytest.raises(ValueError, match="outside 1 to 4"):
        Table.from_dense([1, 1, 0, 0]).k_at(batch_size)


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ((), "at least one"),
        ((Range(2, 3, 1),), "start at 1"),
        ((Range(1, 2, 1), Range(4, 5, 0)), "not adjacent"),
        ((Range(1, 3, 1), Range(3, 5, 0)), "not adjacent"),
        ((Range(1, 2, 1), Range(3, 4, 1)), "same K"),
    ],
)
def test_table_refuses_what_needs_leniency(ranges: tuple[Range, ...], why: str) -> None:
    """Gaps, overlaps, equal neighbours and a late start are no table."""
    with pytest.raises(ValueError, match=why):
        Table(ranges)


@pytest.mark.parametrize(("first", "last", "k"), [(0, 1, 1), (3, 2, 1), (1, 2, -1)])
def test_range_refuses_nonsense(first: int, last: int, k: int) -> None:
    """A range starts at 1 or later, does not end before it starts, and has no negative K."""
    with pytest.raises(ValueError, match=r"range needs|K must"):
        Range(first, last, k)


@pytest.mark.parametrize(
    ("arm", "batch_size", "k"), [(Arm.DSD, 0, 1), (Arm.DSD, 1, -1), (Arm.NO_SPEC, 1, 1), (Arm.STATIC, 1, 0)]
)
def test_cell_refuses_what_no_engine_can_run(arm: Arm, batch_size: int, k: int) -> None:
    """A cell has a batch size, and a K that its arm can run."""
    with pytest.raises(ValueError, match=r"batch size must|impossible|fixed K of 0"):
        Cell(arm, batch_size, k)


def test_tokens_are_steps_and_accepted_drafts() -> None:
    """A prompt receives one token a step and one for each accepted draft."""
    assert PromptCounts("p", steps=10, drafted=(10, 10), accepted=(7, 3)).tokens == 20


@pytest.mark.parametrize(("drafted", "accepted"), [((2,), (3,)), ((11,), (1,)), ((2,), (-1,)), ((2, 2), (1,))])
def test_counts_must_be_possible(drafted: tuple[int, ...], accepted: tuple[int, ...]) -> None:
    """No position has more accepted than drafted, nor more drafted than steps."""
    with pytest.raises(ValueError, match="accepted"):
        PromptCounts("p", steps=10, drafted=drafted, accepted=accepted)


@pytest.mark.parametrize("step_s", [(), (0.0,), (-0.1,), (math.nan,), (math.inf,), (0.1,) * 4])
def test_block_refuses_impossible_step_times(step_s: tuple[float, ...]) -> None:
    """A block holds at least one step, no more than were run, each of positive and finite time."""
    with pytest.raises(ValueError, match=r"kept steps|positive and finite"):
        a_block(step_s=step_s, steps_run=3)


def test_kept_share_is_kept_steps_over_steps_run() -> None:
    """Two kept of three steps run are two thirds."""
    assert a_block(step_s=(0.1, 0.1), steps_run=3).kept_share == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_sizes": ()},
        {"batch_sizes": (0, 1)},
        {"batch_sizes": (4, 1)},
        {"batch_sizes": (4, 4)},
        {"batch_sizes": (1, 17)},
        {"ks": ()},
        {"ks": (0,)},
        {"ks": (1, 2)},
        {"ks": (0, 2, 1)},
        {"starts": 0},
        {"rounds": 0},
        {"steps": 0},
        {"settle": -1},
    ],
)
def test_request_refuses_what_cannot_be_swept(changed: dict[str, object]) -> None:
    """A request names rising batch sizes within max_num_seqs, Ks from 0, and at least one of everything."""
    with pytest.raises(ValueError, match=r"batch size|K must|1 or more"):
        a_request(**changed)


def test_environments_differ_in_what_changes_the_answer() -> None:
    """Each differing key is named with both values, and the spelling of a model's path is none of them."""
    here = an_environment()
    there = an_environment(dtype="float16", model="elsewhere", drafter="elsewhere", k_max=7)
    assert [(d.key, d.right) for d in here.differences(there)] == [("dtype", "float16"), ("k_max", 7)]
    assert str(here.differences(there)[0]) == "dtype: 'none' against 'float16'"
    assert here.differences(an_environment(model="elsewhere")) == []


def test_other_graphs_make_static_an_arm_of_its_own() -> None:
    """A fixed K needs its own measurement exactly where its CUDA graphs differ from the table's engine."""
    full = GraphUse("FULL_AND_PIECEWISE", (1, 2, 4))
    piecewise = GraphUse("PIECEWISE", (1, 2, 4))
    assert an_environment(graphs_dsd=piecewise, graphs_static=full).table_changes_graphs
    assert not an_environment(graphs_dsd=full, graphs_static=full).table_changes_graphs


@pytest.mark.parametrize(("value", "low", "high"), [(0, 1, -1), (math.nan, 0, 1), (0, -math.inf, 1)])
def test_interval_is_finite_and_ordered(value: float, low: float, high: float) -> None:
    """An interval without two finite, ordered ends is none."""
    with pytest.raises(ValueError, match="finite and ordered"):
        Interval(value, low, high)


def test_each_verdict_has_its_exit_code() -> None:
    """Advice to deploy exits 0, no gain 4, and no answer yet 5."""
    assert {v: v.exit_code for v in Verdict} == {
        Verdict.TABLE: 0,
        Verdict.FIXED: 0,
        Verdict.OFF: 4,
        Verdict.UNCLEAR: 5,
    }


def test_records_do_not_change() -> None:
    """A record cannot be changed after it was made."""
    with pytest.raises(FrozenInstanceError):
        a_block().slot = 1  # type: ignore[misc]


def test_prompt_needs_a_name_and_a_text() -> None:
    """A prompt without a name cannot be counted, nor one without text decoded."""
    for id_, text in [("", "Hello"), ("p", "")]:
        with pytest.raises(ValueError, match="prompt"):
            Prompt(id_, text)


@pytest.mark.parametrize(("context", "temperature"), [(0, 0.0), (512, -0.1), (512, math.nan), (512, math.inf)])
def test_an_impossible_condition_is_refused(context: int, temperature: float) -> None:
    """A context holds a token, and a temperature is a finite number from 0."""
    with pytest.raises(ValueError, match=r"context|temperature"):
        Condition(context, temperature)


@pytest.mark.parametrize("changed", [{"contexts": ()}, {"contexts": (512, 512)}, {"temperatures": (0.7, 0.0)}], ids=str)
def test_contexts_and_temperatures_rise(changed: dict[str, Any]) -> None:
    """A sweep measures each condition once, and at least one."""
    with pytest.raises(ValueError, match="must rise and differ"):
        a_request(**changed)


def test_every_context_is_measured_at_every_temperature() -> None:
    """The conditions of a sweep are all pairs."""
    conditions = a_request(contexts=(512, 4096), temperatures=(0.0, 0.7)).conditions
    assert conditions == tuple(Condition(c, t) for c in (512, 4096) for t in (0.0, 0.7))


@pytest.mark.parametrize("changed", [{"arms": ()}, {"batch_size": 0}, {"repetition": -1}], ids=str)
def test_an_impossible_visit_is_refused(changed: dict[str, Any]) -> None:
    """A visit has arms, requests, and a number."""
    visit = Visit(Phase.MAIN, (Arm.DSD,), Condition(512, 0.0), 1, 0)
    with pytest.raises(ValueError, match="a visit needs"):
        replace(visit, **changed)
