import json
from typing import Any

import pytest
import yaml
from builders import a_decided_profile
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.emit.formats import Format, emit
from dsd_tune.errors import UsageError
from dsd_tune.importers.sglang import read_sglang
from dsd_tune.importers.tensorrt_llm import read_tensorrt_llm
from dsd_tune.records.profile import Verdict
from dsd_tune.records.table import Table

dense = st.lists(st.integers(0, 6), min_size=2, max_size=24).filter(lambda ks: len(set(ks)) > 1)

STEPS = Table.from_dense([3] * 4 + [2] * 4 + [1] * 24 + [0] * 32)


def _trtllm(table: Table, verdict: Verdict = Verdict.TABLE) -> Any:
    return yaml.safe_load(emit(a_decided_profile(verdict, table=table), Format.TRTLLM).text)


def _sglang(table: Table, verdict: Verdict = Verdict.TABLE, method: str = "eagle3") -> Any:
    return json.loads(emit(a_decided_profile(verdict, table=table, method=method), Format.SGLANG).text)


def test_one_table_in_both_dialects() -> None:
    """TensorRT-LLM names the last batch size of a range and SGLang the first."""
    assert _trtllm(STEPS) == {
        "max_batch_size": 64,
        "speculative_config": {"max_draft_len": 3, "draft_len_schedule": {4: 3, 8: 2, 32: 1, 64: 0}},
    }
    assert {first: tier["candidate_steps"] for first, tier in _sglang(STEPS).items()} == {
        "1": [3],
        "5": [2],
        "9": [1],
        "33": [0],
    }


@given(dense)
def test_the_schedule_for_tensorrt_llm_reads_back(ks: list[int]) -> None:
    """What is emitted is imported as the same table; one that TensorRT-LLM would refuse is refused."""
    table = Table.from_dense(ks)
    if ks[0] != max(ks):
        with pytest.raises(UsageError, match="largest draft length at the smallest batch sizes"):
            _trtllm(table)
        return
    document = _trtllm(table)
    foreign = read_tensorrt_llm(document, "file", None)
    assert foreign is not None
    assert foreign.table == table
    assert document["speculative_config"]["max_draft_len"] == max(ks)


@given(dense)
def test_the_tiers_for_sglang_read_back(ks: list[int]) -> None:
    """What is emitted is imported as the same table, whether K falls with the batch size or not."""
    table = Table.from_dense(ks)
    foreign = read_sglang(_sglang(table), "file", table.max_num_seqs)
    assert foreign is not None
    assert foreign.table == table


def test_tensorrt_llms_floor_is_said_where_it_matters() -> None:
    """A comment tells that 0 becomes 1 in one-engine drafters, and only where the table has a 0."""
    assert "where this says 0 they draft 1" in emit(a_decided_profile(table=STEPS), Format.TRTLLM).text
    above = Table.from_dense([3] * 4 + [1] * 4)
    assert "where this says 0" not in emit(a_decided_profile(table=above), Format.TRTLLM).text


def test_sglang_is_started_to_fit_its_file() -> None:
    """The initial steps are some tier's, and the draft tokens count the bonus token."""
    remarks = emit(a_decided_profile(table=STEPS, method="mtp"), Format.SGLANG).remarks
    assert "--speculative-num-steps 3 --speculative-num-draft-tokens 4 --max-running-requests 64" in remarks[0]


def test_what_sglang_ignores_is_not_written() -> None:
    """For a method that SGLang does not adapt there is an error and no file."""
    with pytest.raises(UsageError, match="this is ngram"):
        _sglang(STEPS, method="ngram")


@pytest.mark.parametrize("form", [Format.TRTLLM, Format.SGLANG])
def test_the_reader_is_told_where_it_was_measured(form: Format) -> None:
    """Another server has other step times, and the text or the remarks say so."""
    emission = emit(a_decided_profile(method="eagle"), form)
    assert "measured in vLLM" in "\n".join([emission.text, *emission.remarks])


def test_a_fixed_k_is_one_length() -> None:
    """A fixed K needs no schedule in TensorRT-LLM and one tier in SGLang."""
    assert _trtllm(STEPS, Verdict.FIXED)["speculative_config"] == {"max_draft_len": 2}
    assert _sglang(STEPS, Verdict.FIXED) == {"1": {"candidate_steps": [2]}}


@pytest.mark.parametrize("verdict", [Verdict.OFF, Verdict.UNCLEAR])
def test_nothing_speculative_without_advice(verdict: Verdict) -> None:
    """Without a gain that is proved, no other server is told to speculate either."""
    assert _trtllm(STEPS, verdict) == {"max_batch_size": 64}
    assert _sglang(STEPS, verdict) is None
