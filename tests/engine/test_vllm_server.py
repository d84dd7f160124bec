"""A real `vllm serve` with a table, and its own counters."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from engine.tiny_model import make_drafter, make_target
from ports import free_port

from dsd_tune.engines.vllm_running import ask
from dsd_tune.engines.vllm_server import VllmServer, vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("quiet_cores")]


def complete(server: VllmServer, model: Path, tokens: int) -> None:
    """One request of exactly `tokens` tokens."""
    # On CPUs with AMX, vLLM's attention crashes unless a wider matrix product came first: the prompt is not short.
    body = {
        "model": str(model),
        "prompt": "Once upon a time. " * 8,
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
    }
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = Request(f"{server.url}/v1/completions", data, headers)  # noqa: S310 (our own loopback)
    urlopen(request, timeout=300).close()  # noqa: S310


def test_a_server_drafts_what_its_table_says(tmp_path: Path) -> None:
    """A single request runs at the K of batch size 1, and vLLM's counters between two readings show it."""
    target, drafter = make_target(tmp_path / "target"), make_drafter(tmp_path / "eagle")
    speculative = {
        "method": "eagle",
        "model": str(drafter),
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 1, 2], [2, 8, 3]],
    }
    port = free_port()
    arguments = ["--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"]
    arguments += ["--kv-cache-memory-bytes", str(1 << 26), "--speculative-config", json.dumps(speculative)]
    with vllm_server(str(target), arguments, port, tmp_path / "serve.log") as server:
        complete(server, target, 4)
        before = server.draft_counters()
        complete(server, target, 40)
        counted = server.draft_counters().since(before)
        asked = ask(server.url)
    assert counted.drafts > 0
    assert counted.draft_tokens == 2 * counted.drafts
    assert counted.accepted_tokens <= counted.draft_tokens
    assert (asked.k_max, asked.running, asked.max_model_len) == (3, 0, 512)
    assert asked.draft_tokens == before.draft_tokens + counted.draft_tokens
    assert asked.models == (str(target),)
