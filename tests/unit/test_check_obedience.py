from __future__ import annotations

from typing import Any

import pytest

from dsd_tune.check.deployment import Deployment
from dsd_tune.check.obedience import obeyed_since, obstacles
from dsd_tune.engines.vllm_facts import long_flag
from dsd_tune.model.cudagraph import Runner
from dsd_tune.records.release import Release


def _planned(method: str = "eagle3", model: str = "dense", **changed: Any) -> Deployment:
    config = {
        "method": method,
        "model": "d",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 32, 3], [33, 64, 1], [65, 256, 0]],
    }
    fields = {"speculative_config": config, "release": Release(0, 33), "model": model, "asked_max_num_seqs": 256}
    return Deployment(**{**fields, **changed})


@pytest.mark.parametrize(
    ("deployment", "minor"),
    [
        (_planned(), 32),
        (_planned(asked_runner=Runner.V2), 32),
        (_planned(asked_runner=Runner.V1), 24),
        (_planned(cpu=True), 24),
        (_planned(model="org/Qwen3-Next-80B", asked_runner=Runner.V1), 32),
        (_planned("ngram", asked_runner=Runner.V1), 24),
        (_planned("dflash"), 32),
    ],
    ids=["by default", "V2", "V1", "CPU", "hybrid", "ngram", "dflash"],
)
def test_the_oldest_obedient_release(deployment: Deployment, minor: int) -> None:
    """Model runner V2 follows K from 0.32 on, V1 from the start, and hybrid models keep their state from 0.32 on."""
    assert obeyed_since(deployment) == Release(0, minor)


@pytest.mark.parametrize(
    "deployment",
    [_planned(data_parallel_size=8), _planned("suffix"), _planned("ngram_gpu", asked_runner=Runner.V1)],
    ids=["data parallel", "suffix", "ngram_gpu"],
)
def test_no_release_obeys(deployment: Deployment) -> None:
    """Data parallelism and methods that drop the table leave no version to name, and a reason to give."""
    assert obeyed_since(deployment) is None
    assert "table" in obstacles(deployment)[0].reason


def test_a_gap_in_obedience_is_not_jumped() -> None:
    """0.24 obeys on its own default runner and 0.25 does not, so 0.24 is not the oldest to rely on."""
    assert obstacles(_planned(release=Release(0, 24))) == []
    assert obstacles(_planned(release=Release(0, 25))) != []
    assert obeyed_since(_planned(release=Release(0, 24))) == Release(0, 32)


def test_faults_of_the_config_are_no_matter_of_release() -> None:
    """What every version refuses alike says nothing about versions."""
    config = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    table = {"num_speculative_tokens_per_batch_size": [[1, 256, 7]]}
    assert obstacles(_planned(speculative_config=config | table)) == []


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        ("-tp", "tensor-parallel-size", None),
        ("-tp=2", "tensor-parallel-size", "2"),
        ("--max_model_len=1=2", "max-model-len", "1=2"),
        ("-cc.cudagraph_mode", "compilation-config.cudagraph_mode", None),
        ("--a_b.c_d=x.y", "a-b.c_d", "x.y"),
        ("-O3", "optimization-level", "3"),
        ("-O=3", "optimization-level", "3"),
        ("-O", "optimization-level", None),
        ("--tp", "tp", None),
        ("-unknown", "unknown", None),
    ],
)
def test_flags_have_one_long_name(word: str, name: str, value: str | None) -> None:
    """Short flags, underscores and glued values are told apart as vLLM does."""
    assert long_flag(word) == (name, value)
