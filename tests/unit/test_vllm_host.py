"""Loads of a server by `vllm bench serve`, as far as they need no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import a_validation_request

from dsd_tune.engines import vllm_host
from dsd_tune.engines.vllm_bench import LoadOrder
from dsd_tune.engines.vllm_host import VllmHost, read_load
from dsd_tune.errors import EngineFailed
from dsd_tune.records.prompt import Prompt
from dsd_tune.records.validation import Load, ServedArm

RESULT = {
    "completed": 8,
    "failed": 0,
    "duration": 4.0,
    "input_lens": [50, 41, 42, 43, 44, 45, 46, 47],
    "output_lens": [129] * 8,
    "mean_tpot_ms": 20.0,
    "mean_ttft_ms": 60.0,
    "p99_tpot_ms": 25.0,
    "p99_ttft_ms": 90.0,
}
DRAFTED = {
    "spec_decode_acceptance_length": 2.0,
    "spec_decode_num_drafts": 512,
    "spec_decode_draft_tokens": 1024,
    "spec_decode_accepted_tokens": 512,
}


def _read(result: Mapping[str, Any], *, counted: bool = True) -> Load:
    return read_load(result, ServedArm.TABLE, 0, 4, 1.5, counted=counted, vllm_version="0.32.0")


def test_drafts_are_told_for_a_request_and_step() -> None:
    """512 of 1024 tokens after the first came from acceptance, so there were 512 steps, and two drafts in each."""
    assert _read({**RESULT, **DRAFTED}).mean_k == pytest.approx(2.0)


def test_tokens_accepted_beyond_the_end_of_a_text_hide_no_steps() -> None:
    """Texts of 12 tokens at K=7 take two steps after the first token; these yield 12.5 each, of which 11 are kept."""
    short = {**RESULT, "output_lens": [12] * 8}
    drafted = {"spec_decode_num_drafts": 16, "spec_decode_draft_tokens": 112, "spec_decode_accepted_tokens": 84}
    assert _read({**short, **drafted}).mean_k == pytest.approx(7)


def test_no_drafts_are_not_the_same_as_nobody_counting() -> None:
    """A server with counters that tells of none has drafted nothing; behind a router without metrics nobody knows."""
    assert _read(RESULT).mean_k == 0
    assert _read(RESULT, counted=False).mean_k is None
    assert _read({**RESULT, **DRAFTED}, counted=False).mean_k == pytest.approx(2.0)


@pytest.mark.parametrize("lacking", ["completed", "duration", "mean_tpot_ms", "input_lens", "output_lens"])
def test_a_result_that_says_too_little_is_refused(lacking: str) -> None:
    """What every such file has is missing: the arm and the concurrency are named."""
    with pytest.raises(EngineFailed, match="table at concurrency 4"):
        _read({key: value for key, value in RESULT.items() if key != lacking})


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (["", "Not Found", "Bad Gateway"], "was answered: Not Found. Mend"),
        (["Traceback (most recent call last):\n  ...\nOSError: refused.\n"], "was answered: OSError: refused. Mend"),
        ([], "was answered: nothing is said of why. Mend"),
    ],
)
def test_a_load_without_an_answer_says_why(errors: list[str], said: str) -> None:
    """The first complaint of a request, not the times that are missing for it."""
    with pytest.raises(EngineFailed, match=said):
        _read({**RESULT, "completed": 0, "failed": 8, "output_lens": [0] * 8, "mean_tpot_ms": 0.0, "errors": errors})


def test_texts_that_failed_have_no_length() -> None:
    """vLLM lists a request that failed with no tokens; only those answered count, and their prompts."""
    load = _read({**RESULT, "completed": 6, "failed": 2, "output_lens": [40, 0, 90, 128, 128, 7, 0, 128]})
    assert (load.output_lens, load.output_tokens) == ((40, 90, 128, 128, 7, 128), 521)
    assert load.input_lens == (50, 42, 43, 44, 45, 47)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LoadOrder, list[str]]]:
    """Every load that was ordered, with its texts, in place of a real one."""
    orders: list[tuple[LoadOrder, list[str]]] = []

    def bench(url: str, order: LoadOrder, result: Path) -> Mapping[str, Any]:
        orders.append((order, [json.loads(line)["prompt"] for line in order.prompts.read_text().splitlines()]))
        return RESULT

    monkeypatch.setattr(vllm_host, "bench", bench)
    monkeypatch.setattr(vllm_host, "_counts", lambda _url: True)
    monkeypatch.setattr(vllm_host, "told_version", lambda _url: "0.32.0")
    monkeypatch.setattr(vllm_host, "has_chat_template", lambda model: model == "talks")
    return orders


def test_each_start_sees_other_texts_and_each_arm_the_same(
    asked: list[tuple[LoadOrder, list[str]]], tmp_path: Path
) -> None:
    """With enough texts none comes twice to a server or in two starts; with few they begin anew, all counting."""
    request = a_validation_request(concurrency=(1, 4), requests=(8, 32), starts=2)
    texts = [Prompt(str(n), f"text {n}") for n in range(80)]
    for arm in (ServedArm.NO_SPEC, ServedArm.TABLE):
        client = VllmHost(request, texts, "talks", 1, tmp_path).client("http://localhost:1", arm)
        for start in range(2):
            for concurrency in request.concurrency:
                client.load(concurrency, start)
    seen = [prompts for _, prompts in asked]
    assert [len(prompts) for prompts in seen] == 2 * [8, 32, 8, 32]
    assert seen[:4] == seen[4:]
    assert len({prompt for prompts in seen[:4] for prompt in prompts}) == 80
    few = VllmHost(request, texts[:5], "talks", 1, tmp_path).client("http://localhost:1", ServedArm.TABLE)
    few.load(4, 1)
    assert {seen.count(text) for seen in [asked[-1][1]] for text in set(seen)} == {6, 7}


@pytest.mark.parametrize(("tokenizer", "chat"), [("talks", True), ("does not", False)])
def test_a_running_server_is_asked_as_the_sweep_asked_its_engine(
    asked: list[tuple[LoadOrder, list[str]]], tmp_path: Path, tokenizer: str, chat: bool
) -> None:
    """Whatever it calls its model, the profile's tokenizer counts, and says whether there is a chat template."""
    request = a_validation_request(concurrency=(4,), requests=(8,))
    host = VllmHost(request, [Prompt("p", "Why?")], tokenizer, 1, tmp_path)
    load = host.client("http://localhost:1", ServedArm.TABLE).load(4, 0)
    assert load.vllm_version == "0.32.0"
    (order, _) = asked[0]
    assert (order.tokenizer, order.chat) == (tokenizer, chat)
