"""Tables of other engines in vLLM's form: each counts to its own end."""

import json
from pathlib import Path

import pytest
from importing import Said, written

TRTLLM = {"max_num_seqs": 64, "draft_len_schedule": {"4": 3, "8": 2, "32": 1}}
SGLANG = {"max_num_seqs": 256, "bs_params": {"1": 3, "64": 2, "128": 1}}


@pytest.mark.parametrize(
    ("name", "document", "lists"),
    [
        ("trtllm", TRTLLM, [[1, 4, 3], [5, 8, 2], [9, 32, 1], [33, 64, 0]]),
        ("sglang", SGLANG, [[1, 63, 3], [64, 127, 2], [128, 256, 1]]),
    ],
)
def test_foreign_tables_differ_by_one_in_opposite_directions(
    name: str, document: object, lists: list[list[int]], tmp_path: Path
) -> None:
    """Case 41: TensorRT-LLM's keys end a range, SGLang's keys begin one."""
    said = Said(written(tmp_path / f"{name}.json", json.dumps(document)))
    assert json.loads(said.out) == {
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": lists,
    }


def test_tables_own_file_formats(tmp_path: Path) -> None:
    """Case 41: an LLM-API YAML and an adaptive config are read as their servers take them."""
    pytest.importorskip("yaml")
    trt = "max_batch_size: 16\nspeculative_config:\n  decoding_type: Eagle\n  draft_len_schedule: {4: 4, 8: 2}\n"
    sglang = {"8": {"candidate_steps": [1]}, "2": {"candidate_steps": [3]}, "ema_alpha": 0.2}
    said = Said(written(tmp_path / "llm.yaml", trt))
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 4, 4], [5, 8, 2], [9, 16, 0]]
    said = Said(written(tmp_path / "sglang.json", json.dumps(sglang)), "--max-num-seqs", 16)
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 7, 3], [8, 16, 1]]


def test_tensorrt_llm_is_off_above_its_max_concurrency(tmp_path: Path) -> None:
    """TensorRT-LLM drafts nothing above max_concurrency, whatever its schedule says."""
    config = {
        "max_batch_size": 32,
        "speculative_config": {"max_concurrency": 6, "draft_len_schedule": {"4": 3, "8": 2}},
    }
    said = Said(written(tmp_path / "trt.json", json.dumps(config)))
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 4, 3], [5, 6, 2], [7, 32, 0]]


def test_adaptive_tiers_with_a_choice_are_refused(tmp_path: Path) -> None:
    """SGLang tiers that choose among steps while they run are no table."""
    tiers = {"1": {"candidate_steps": [1, 3, 5]}, "8": {"candidate_steps": [0]}}
    said = Said(written(tmp_path / "sglang.json", json.dumps(tiers)), "--max-num-seqs", 16)
    assert said.code == 2
    assert "chooses among [1, 3, 5]" in said.error


def test_foreign_table_without_an_end_is_refused(tmp_path: Path) -> None:
    """A table is closed at a stated size, never where its last key happens to be."""
    path = written(tmp_path / "trt.json", json.dumps({"draft_len_schedule": {"4": 3}}))
    said = Said(path)
    assert said.code == 2
    assert "--max-num-seqs" in said.error
    assert json.loads(Said(path, "--max-num-seqs", 2).out) == {"num_speculative_tokens": 3}
