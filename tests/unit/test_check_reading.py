from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.check.reading import Lookup, Origin, Refusal, Rejected, lax_int, read


def accepted(raw: object, k_max: int, max_num_seqs: int) -> Lookup:
    """The lookup of a table that vLLM takes."""
    lookup = read(raw, k_max, max_num_seqs)
    assert isinstance(lookup, Lookup), lookup
    return lookup


@pytest.mark.parametrize(
    ("raw", "refusal", "offenders"),
    [
        ({"1-16": 3}, Refusal.NOT_A_LIST, ({"1-16": 3},)),
        ([[1, 64, 0, 32768, 3]], Refusal.NOT_THREE_NUMBERS, ([1, 64, 0, 32768, 3],)),
        ([[1, 64, 2.5]], Refusal.NOT_THREE_NUMBERS, ([1, 64, 2.5],)),
        (["123"], Refusal.NOT_THREE_NUMBERS, ("123",)),
        ([], Refusal.EMPTY, ()),
        ([[0, 4, 1]], Refusal.NOT_POSITIVE, ([0, 4, 1],)),
        ([[4, 1, 1]], Refusal.REVERSED, ([4, 1, 1],)),
        ([[1, 4, -1]], Refusal.NEGATIVE_K, ([1, 4, -1],)),
        ([[1, 64, 3], [64, 128, 1]], Refusal.OVERLAP, ([1, 64, 3], [64, 128, 1])),
        ([[64, 128, 1], [1, 64, 3]], Refusal.OVERLAP, ([1, 64, 3], [64, 128, 1])),
        ([[2, 64, 3], [65, 256, 0]], Refusal.NOT_FROM_ONE, ([2, 64, 3],)),
    ],
    ids=str,
)
def test_names_rule_and_offender(raw: object, refusal: Refusal, offenders: tuple[object, ...]) -> None:
    """A rejection names the rule that vLLM applies first and the ranges at fault."""
    assert read(raw, 3, 64) == Rejected(refusal, offenders)


def test_says_when_vllm_notices() -> None:
    """Shape is checked when the configuration is parsed, meaning only when the weights are loaded."""
    early = {refusal for refusal in Refusal if "parses" in refusal.when}
    assert early == {Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS}
    assert all("weights" in refusal.when for refusal in set(Refusal) - early)


def test_carries_k_over_gaps_and_past_the_end() -> None:
    """A gap and the tail have the K before them, and are told apart from what is stated."""
    spans = accepted([[1, 16, 3], [64, 128, 2]], 3, 256).spans()
    assert [(s.first, s.last, s.k, s.origin) for s in spans] == [
        (1, 16, 3, Origin.STATED),
        (17, 63, 3, Origin.GAP),
        (64, 128, 2, Origin.STATED),
        (129, 256, 2, Origin.TAIL),
    ]


def test_clamps_and_remembers_what_was_stated() -> None:
    """K above num_speculative_tokens becomes it, and the span keeps the K of the table."""
    first, second = accepted([[1, 2, 7], [3, 8, 5]], 5, 8).spans()
    assert (first.k, first.stated_k, first.is_clamped) == (5, 7, True)
    assert not second.is_clamped
    assert accepted([[1, 2, 7], [3, 8, 5]], 5, 8).canonical().as_lists() == [[1, 8, 5]]


@given(
    cuts=st.sets(st.integers(1, 60), min_size=1, max_size=6),
    ks=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    gap=st.integers(0, 3),
    k_max=st.integers(1, 7),
    max_num_seqs=st.integers(1, 70),
)
def test_looks_up_the_last_range_that_has_begun(
    cuts: set[int], ks: list[int], gap: int, k_max: int, max_num_seqs: int
) -> None:
    """At each batch size K is that of the last range starting there or before, at most num_speculative_tokens."""
    firsts = sorted({1, *cuts})
    entries = [
        [first, max(first, after - 1 - gap), k]
        for first, after, k in zip(firsts, [*firsts[1:], 80], [*ks, 2], strict=False)
    ]
    dense = accepted(entries[::-1], k_max, max_num_seqs).dense()
    for batch_size, k in enumerate(dense, start=1):
        begun = [entry for entry in entries if entry[0] <= batch_size]
        assert k == min(begun[-1][2], k_max)
    assert len(dense) == max_num_seqs


@pytest.mark.parametrize("value", [3, 3.0, "3", " 3 ", "+3", "003", "3.00", "0_3"], ids=repr)
def test_numbers_may_be_written_in_other_ways(value: object) -> None:
    """Whole numbers as text or with an empty fraction count, as in vLLM's configuration."""
    assert lax_int(value) == 3


@pytest.mark.parametrize(
    "value", [None, 3.5, "3.5", "3.", "x", "", "1e3", "_3", [3], {}, float("inf"), 1e19, "٣"], ids=repr
)
def test_other_values_are_no_numbers(value: object) -> None:
    """What vLLM's configuration refuses as a number is refused here."""
    assert lax_int(value) is None
