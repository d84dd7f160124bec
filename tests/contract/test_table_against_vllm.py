"""Our reading of a table against the installed vLLM's own."""

from __future__ import annotations

import pytest
from builders import AStep
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.records.table import Table
from dsd_tune.runtime.policies.table import TablePolicy

pytestmark = pytest.mark.vllm


@given(ks=st.lists(st.integers(0, 7), min_size=1, max_size=300).filter(any), beyond=st.integers(0, 50))
def test_lookup_equals_vllms(ks: list[int], beyond: int) -> None:
    """vLLM looks up the K we meant at every batch size, and past the table's end the K that our policy gives."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    table = Table.from_dense(ks)
    theirs = build_dynamic_sd_schedule_lookup(table.as_lists(), table.max_num_seqs + beyond, table.k_max)
    assert table.dense() == tuple(theirs[1 : table.max_num_seqs + 1])
    policy = TablePolicy(table)
    assert [policy.k(AStep(batch_size)) for batch_size in range(len(theirs))] == theirs
