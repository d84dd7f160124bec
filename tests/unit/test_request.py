import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.cli.request import Target, named_target, parse_config, sweep_request
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.errors import UsageError
from dsd_tune.records.run import SweepRequest

EAGLE = {"method": "eagle", "model": "drafter"}


def _request(config: dict[str, object] | None = None, **changed: Any) -> SweepRequest:
    options: dict[str, Any] = {
        "batch_sizes": None,
        "max_k": None,
        "max_num_seqs": None,
        "contexts": (512,),
        "temperatures": (0.0,),
        "starts": 3,
        "rounds": 2,
        "seed": 0,
        "load_format": "auto",
        "synthetic_acceptance": (),
    }
    target = Target("model", config or EAGLE, Path("prompts.jsonl"), ("--enforce-eager",))
    return sweep_request(target, **options | changed)


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [
        ({}, (1, 2, 4, 8, 16, 32)),
        ({"max_num_seqs": 1}, (1,)),
        ({"max_num_seqs": 8}, (1, 2, 4, 8)),
        ({"max_num_seqs": 48}, (1, 2, 4, 8, 16, 32, 48)),
        ({"batch_sizes": "1,8,4,8"}, (1, 4, 8)),
        ({"batch_sizes": " 2, 4 "}, (1, 2, 4)),
        ({"batch_sizes": "1,4", "max_num_seqs": 6}, (1, 4, 6)),
    ],
    ids=str,
)
def test_batch_sizes_reach_from_one_to_the_largest_served(asked: dict[str, Any], sizes: tuple[int, ...]) -> None:
    """Batch sizes double by default; 1 and the largest served are always among them, so that a table can be closed."""
    request = _request(**asked)
    assert request.batch_sizes == sizes
    assert request.max_num_seqs == sizes[-1]


@given(st.integers(1, 2000))
def test_any_largest_batch_size_makes_a_plan(max_num_seqs: int) -> None:
    """Default batch sizes at most double, whatever the largest is."""
    sizes = _request(max_num_seqs=max_num_seqs).batch_sizes
    assert sizes[0] == 1
    assert sizes[-1] == max_num_seqs
    assert all(right <= 2 * left for left, right in pairwise(sizes))


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"batch_sizes": "1,64", "max_num_seqs": 32}, "batch size 64 exceeds --max-num-seqs 32"),
        ({"batch_sizes": "one,two"}, "no list of whole numbers"),
        ({"batch_sizes": "1;2"}, "no list of whole numbers"),
        ({"batch_sizes": "1.5"}, "no list of whole numbers"),
        ({"batch_sizes": ""}, "no list of whole numbers"),
        ({"batch_sizes": "0,1"}, "batch size 0 is impossible"),
        ({"batch_sizes": "-4"}, "batch size -4 is impossible"),
        ({"max_num_seqs": 0}, "--max-num-seqs must be 1 or more"),
        ({"max_num_seqs": -1, "batch_sizes": "1"}, "--max-num-seqs must be 1 or more"),
        ({"max_k": 0}, "the largest K must be 1 or more, got 0"),
        ({"max_k": -1}, "the largest K must be 1 or more"),
        ({"config": EAGLE | {"num_speculative_tokens": 0}}, "the largest K must be 1 or more, got 0"),
        ({"config": EAGLE | {"num_speculative_tokens": "3"}}, "the largest K must be 1 or more"),
        ({"config": EAGLE | {"num_speculative_tokens": True}}, "the largest K must be 1 or more"),
        ({"temperatures": (float("nan"),)}, "temperature"),
        ({"temperatures": (0.0, float("inf"))}, "temperature"),
    ],
    ids=str,
)
def test_nonsense_is_refused_in_one_sentence(asked: dict[str, Any], complaint: str) -> None:
    """What cannot be measured is refused before anything starts, with what is wrong and what to do."""
    with pytest.raises(UsageError) as refusal:
        _request(**asked)
    assert complaint in refusal.value.what
    assert refusal.value.todo


@pytest.mark.parametrize(
    ("asked", "ks"),
    [
        ({}, (0, 1, 2, 3, 4)),
        ({"max_k": 2}, (0, 1, 2)),
        ({"config": EAGLE | {"num_speculative_tokens": 3}}, (0, 1, 2, 3)),
        ({"config": EAGLE | {"num_speculative_tokens": 3}, "max_k": 1}, (0, 1)),
    ],
    ids=str,
)
def test_largest_k_is_the_flags_then_the_configs(asked: dict[str, Any], ks: tuple[int, ...]) -> None:
    """K runs from 0 to `--max-k`, else to the config's own number, else to 4."""
    assert _request(**asked).ks == ks


def test_request_keeps_the_users_config() -> None:
    """The speculative config is kept as JSON, every key of it."""
    config = EAGLE | {"draft_tensor_parallel_size": 1}
    assert json.loads(_request(config).speculative_config) == config


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{method: eagle}", "is not JSON"),
        ("", "is not JSON"),
        ("eagle", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1, 2]", "names no method and no model"),
        ("null", "names no method and no model"),
        ("{}", "names no method and no model"),
        ('{"num_speculative_tokens": 3}', "names no method and no model"),
        (json.dumps(EAGLE | {TABLE_FIELD: [[1, 4, 2]]}), "holds num_speculative_tokens_per_batch_size already"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_configs_that_are_none_are_refused(text: str, complaint: str) -> None:
    """Text that is no JSON, names no drafter, or brings a table is refused with the reason."""
    with pytest.raises(UsageError, match=complaint):
        parse_config(text)


def test_missing_parts_are_named() -> None:
    """Without the testbed, model, config and prompts must all be given; those that are missing are named."""
    with pytest.raises(UsageError, match=r"^--model, --prompts must be given"):
        named_target(None, '{"method": "ngram"}', None, [])


def test_engine_flags_are_kept_in_order() -> None:
    """What stands after `--` is passed on word for word."""
    target = named_target("m", json.dumps(EAGLE), Path("p"), ["--dtype", "bfloat16", "--enforce-eager"])
    assert target.engine_flags == ("--dtype", "bfloat16", "--enforce-eager")


@pytest.mark.parametrize(
    "asked",
    [{"max_k": 1025}, {"max_k": 10**9}, {"config": {"method": "eagle", "num_speculative_tokens": 1025}}],
    ids=str,
)
def test_an_absurd_k_is_refused(asked: dict[str, Any]) -> None:
    """A K that no drafter reaches is refused, whoever states it; the largest allowed makes a plan."""
    with pytest.raises(UsageError, match="must be 1024 or less"):
        _request(**asked)
    assert _request(max_k=1024).k_max == 1024
