from __future__ import annotations

from typing import Any

import pytest

from dsd_tune.check.command_line import deployment, from_words, from_yaml, to_flags
from dsd_tune.check.deployment import Deployment
from dsd_tune.errors import UsageError
from dsd_tune.model.cudagraph import CudagraphMode, Runner
from dsd_tune.records.release import Release

CONFIG = '{"method":"eagle3","num_speculative_tokens":3}'


def planned(*words: str) -> Deployment:
    """The deployment of a command line under vLLM 0.33, with a speculative config."""
    return deployment(from_words(["vllm", "serve", "-sc", CONFIG, *words]), Release(0, 33), cpu=False)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--max-num-seqs", "64"], "max_num_seqs", 64),
        (["-dp", "2"], "data_parallel_size", 2),
        (["-pp=2"], "pipeline_parallel_size", 2),
        (["--tensor_parallel_size", "4"], "tensor_parallel_size", 4),
        (["--max-num-batched-tokens", "8k"], "max_num_batched_tokens", 8000),
        (["--max-num-batched-tokens", "8K"], "max_num_batched_tokens", 8192),
        (["--enforce-eager"], "cudagraph_mode", CudagraphMode.NONE),
        (["--compilation-config", '{"cudagraph_mode":"full"}'], "cudagraph_mode", CudagraphMode.FULL),
        (["-cc.cudagraph_mode=PIECEWISE"], "cudagraph_mode", CudagraphMode.PIECEWISE),
        (["-cc.cudagraph-capture-sizes", "[8,4]"], "capture_sizes", (4, 8)),
        (["--cudagraph-capture-sizes", "8", "4", "--enable-lora"], "capture_sizes", (4, 8)),
        (["--max-cudagraph-capture-size", "640"], "max_capture_size", 640),
        (["--enable-lora"], "lora", True),
        (["--kv-transfer-config", "{}"], "kv_transfer", True),
        (["--mamba-cache-mode", "align"], "mamba_cache_mode", "align"),
        (["--speculative-config.num_speculative_tokens", "5"], "k_max", 5),
        (["--speculative-config.num-speculative-tokens-per-batch-size", "[[1,4,3]]"], "raw_table", [[1, 4, 3]]),
        (["--spec-tokens", "7"], "k_max", 7),
        (["--spec-method", "ngram"], "method", "ngram"),
    ],
    ids=str,
)
def test_flags_are_read_as_vllm_reads_them(words: list[str], field: str, value: Any) -> None:
    """Short, dotted, underscored and united forms of a flag mean the same to us as to vLLM."""
    assert getattr(planned(*words), field) == value


def test_last_flag_wins() -> None:
    """A repeated flag counts as last given."""
    assert planned("--max-num-seqs", "64", "--max-num-seqs", "32").max_num_seqs == 32


def test_model_is_the_word_after_serve() -> None:
    """The model is positional, whatever the program is called."""
    assert from_words(["/usr/bin/vllm", "serve", "org/model", "--port", "1"]) == {"model": "org/model", "port": "1"}


@pytest.mark.parametrize(("value", "runner"), [("0", Runner.V1), ("1", Runner.V2)])
def test_environment_before_the_command_chooses_the_runner(value: str, runner: Runner) -> None:
    """VLLM_USE_V2_MODEL_RUNNER in front of the command is part of it."""
    words = f"A=b VLLM_USE_V2_MODEL_RUNNER={value} vllm serve m --speculative-config '{CONFIG}'"
    assert deployment(from_words([words]), Release(0, 33), cpu=False).runner is runner


def test_yaml_and_flags_mean_the_same() -> None:
    """A config file with nested mappings, switches and lists gives the deployment of the equal command line."""
    file = """
model: m
max_num_seqs: 64
enable-lora: true
enforce-eager: false
speculative-config:
  method: eagle3
  num_speculative_tokens: 3
compilation-config:
  cudagraph_capture_sizes: [4, 8]
"""
    words = [
        "vllm",
        "serve",
        "m",
        "--max-num-seqs",
        "64",
        "--enable-lora",
        "-sc",
        CONFIG,
        "-cc",
        '{"cudagraph_capture_sizes":[4,8]}',
    ]
    made = [deployment(settings, Release(0, 33), cpu=False) for settings in (from_yaml(file), from_words(words))]
    assert made[0] == made[1]


@pytest.mark.parametrize("text", ["a: [", "- a", "text"], ids=["broken", "list", "scalar"])
def test_other_files_are_refused(text: str) -> None:
    """A file that is no YAML mapping cannot be a config."""
    with pytest.raises(UsageError, match="config file"):
        from_yaml(text)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--max-num-seqs", "many"], "no whole number"),
        (["-cc", '{"cudagraph_mode":"SOME"}'], "cannot be served"),
        (["-cc", "3"], "no JSON object"),
        (["--data-parallel-size", "0"], "cannot be served"),
    ],
    ids=["count", "mode", "object", "ranks"],
)
def test_impossible_values_are_usage_errors(words: list[str], hint: str) -> None:
    """A flag whose value vLLM could not take is named."""
    with pytest.raises(UsageError, match=hint):
        planned(*words)


def test_open_quotes_are_a_usage_error() -> None:
    """A pasted line with an open quote cannot be split."""
    with pytest.raises(UsageError, match="quotes"):
        from_words(["vllm serve 'm"])


def test_settings_become_words_that_mean_the_same() -> None:
    """What was read from words, options or a file can be given to vLLM as words, without what only we understand."""
    words = ["--max-num-seqs=8", "--enable-lora", "--cudagraph-capture-sizes", "1", "2", "--speculative-config.model=d"]
    settings = from_words(words)
    assert from_words(to_flags({**settings, "model-runner": "v2", "config": "f.yaml"})) == settings
    assert to_flags({"speculative-config": {"method": "mtp"}}) == ['--speculative-config={"method": "mtp"}']
