"""What we emit against the installed vLLM's own parser of words and files; no engine starts."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import a_decided_profile

from dsd_tune.emit.formats import Format, emit
from dsd_tune.engines.vllm_facts import SHORT_FLAGS, TABLE_FIELD
from dsd_tune.records.profile import Profile, Verdict

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

FLAGS = (
    *("-tp", "2", "--dtype=bfloat16", "--enforce-eager", "--no-enable-prefix-caching", "-O1", "-q", "fp8"),
    *("--max_model_len", "8k", "-cc.cudagraph_mode=PIECEWISE", "--gpu-memory-utilization", "0.9", "--seed", "-1"),
    *("--served-model-name", "1.10", "on", "--hf-overrides", '{"rope": {"a b": "c\'d"}}', "--revision", "1e3"),
)
"""Short, glued, negated, dotted and repeated-value flags, with words that YAML would read as something else."""

AWKWARD = '/models/it\'s a "model"/$HOME;ü 漢字'

CONTAINERS = {Format.COMPOSE: "command", Format.K8S: "args"}


@pytest.fixture(scope="module")
def parser() -> Any:
    """The parser of `vllm serve`."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def _told(parser: Any, words: list[str]) -> dict[str, Any]:
    """What vLLM understands. Words begin as its program gives them to the parser."""
    parsed: Namespace = parser.parse_args(words)
    return {name: value for name, value in vars(parsed).items() if name not in ("config", "model", "model_tag")}


def _words(profile: Profile, form: Format, folder: Path) -> list[str]:
    """The words behind `vllm serve`, from whatever format."""
    text = emit(profile, form, "a remark").text
    if form is Format.CLI:
        return shlex.split(text)[2:]
    if form is Format.YAML:
        path = folder / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return ["--config", str(path)]
    return [word.replace("$$", "$") for word in yaml.safe_load(text)[CONTAINERS[form]]]


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize("form", [Format.CLI, Format.YAML, *CONTAINERS])
def test_vllm_parses_what_was_measured(parser: Any, tmp_path: Path, form: Format, verdict: Verdict) -> None:
    """Every format gives vLLM the flags of the sweep, the closing max_num_seqs and the advised config."""
    config = {"method": "eagle", "model": AWKWARD}
    profile = a_decided_profile(verdict, flags=FLAGS, capture_sizes=(1, 2, 4, 24), config=config)
    advised = json.loads(emit(profile, Format.JSON).text)
    flags = parser.parse_args([*FLAGS, "--max-num-seqs", "16"])
    told = _told(parser, _words(profile, form, tmp_path))
    assert told["speculative_config"] == advised
    assert told["max_num_seqs"] == 16
    assert told["cudagraph_capture_sizes"] == ([1, 2, 4, 24] if verdict is Verdict.TABLE else None)
    assert told["tensor_parallel_size"] == 2
    assert told["max_model_len"] == 8000
    for name in ("dtype", "enforce_eager", "enable_prefix_caching", "optimization_level", "quantization", "seed"):
        assert told[name] == getattr(flags, name), name
    for name in ("gpu_memory_utilization", "served_model_name", "hf_overrides", "revision", "compilation_config"):
        assert told[name] == getattr(flags, name), name


def test_vllm_accepts_the_config() -> None:
    """vLLM's own configuration takes the emitted JSON, and holds the table as it was decided."""
    from vllm.config.speculative import SpeculativeConfig

    config = json.loads(emit(a_decided_profile(config={"method": "ngram", "prompt_lookup_max": 4}), Format.JSON).text)
    parsed = SpeculativeConfig(**config)
    assert parsed.num_speculative_tokens == 2
    assert [list(entry) for entry in getattr(parsed, TABLE_FIELD)] == [[1, 4, 2], [5, 16, 0]]


def test_every_short_flag_is_known(parser: Any) -> None:
    """vLLM's short flags are those that we know by their long names."""
    theirs = {
        short.lstrip("-"): long.lstrip("-")
        for action in parser._actions
        for short in action.option_strings
        for long in action.option_strings
        if not short.startswith("--") and long.startswith("--") and not long.startswith("--no-")
    }
    # vLLM rewrites -O itself, and help asks for nothing.
    assert theirs == {short: long for short, long in SHORT_FLAGS.items() if short != "O"} | {"h": "help"}
