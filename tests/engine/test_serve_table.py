"""The emitted line on a real `vllm serve`: the server's own counters prove that the table is live."""

from __future__ import annotations

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from builders import a_profile
from ports import free_port

from dsd_tune.cli.request import TESTBED_FLAGS
from dsd_tune.emit.formats import Format, emit
from dsd_tune.engines.vllm_server import DraftCounters, VllmServer, vllm_server
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.testbed.prepare import prepare

pytestmark = pytest.mark.vllm

TABLE = Table.from_dense([3, 3, 1, 1, 1, 1, 1, 1])
START_S = 300


def _profile() -> Profile:
    """A profile of the testbed whose verdict is `TABLE`."""
    ready = prepare(lambda _line: None)
    profile = a_profile()
    config = {"method": "eagle", "model": str(ready.eagle)}
    request = replace(
        profile.request,
        model=str(ready.target),
        speculative_config=json.dumps(config),
        batch_sizes=(1, 2, 4, 8),
        max_num_seqs=TABLE.max_num_seqs,
        engine_flags=TESTBED_FLAGS,
    )
    decision = replace(profile.decision, verdict=Verdict.TABLE, table=TABLE, max_num_seqs=TABLE.max_num_seqs)
    environment = replace(profile.environment, model=str(ready.target))
    return replace(profile, request=request, decision=decision, environment=environment)


def _complete(server: VllmServer, model: str, number: int) -> None:
    body = {
        "model": model,
        "prompt": f"Tell me {number} things about rivers and bridges.",
        "max_tokens": 64,
        "temperature": 0,
        "ignore_eos": True,
    }
    request = Request(  # noqa: S310 (our own loopback)
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with build_opener(ProxyHandler({})).open(request, timeout=300) as answer:
        assert answer.status == 200


def _draft_under(server: VllmServer, model: str, concurrency: int) -> DraftCounters:
    """What vLLM counts while `concurrency` requests decode side by side."""
    before = server.draft_counters()
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(lambda n: _complete(server, model, n), range(concurrency)))
    return server.draft_counters().since(before)


def test_the_emitted_table_is_live_on_a_server(tmp_path: Path) -> None:
    """Below the boundary vLLM counts K=3 draft tokens a draft, above it close to K=1."""
    vllm, serve, model, *arguments = shlex.split(emit(_profile(), Format.CLI).text)
    assert (vllm, serve) == ("vllm", "serve")
    with vllm_server(model, arguments, free_port(), tmp_path / "server.log", START_S) as server:
        below = _draft_under(server, model, 2)
        above = _draft_under(server, model, 8)
    assert 2.7 <= below.draft_tokens / below.drafts <= 3.0
    # The first request in and the last two out run at K=3, as the table says.
    assert 1.0 <= above.draft_tokens / above.drafts <= 1.6
