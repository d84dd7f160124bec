"""Asks a running server what it is and what it has drafted so far. Sends no traffic of its own."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from dsd_tune.engines.vllm_server import parse_draft_counters
from dsd_tune.errors import EnvironmentUnfit, UsageError
from dsd_tune.records.release import Release
from dsd_tune.records.running import RunningServer

_LIMIT_S = 10
_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

# As in vllm_server: what is asked for by its address is not meant for a proxy.
_open = build_opener(ProxyHandler({})).open


def ask(url: str) -> RunningServer:
    """What the server at `url` says on /version, /metrics and /v1/models; the last may ask for a key, and is optional.

    Raises:
        UsageError: this is no address of a web server.
        EnvironmentUnfit: no vLLM answers there.
    """
    if not re.match(r"https?://[^/\s]", url):
        raise UsageError(f"{url} is no address of a server.", "Write http://HOST:PORT.")
    base = url.rstrip("/")
    version = str(_json(base, "/version").get("version", ""))
    try:
        Release.parse(version)
    except ValueError as error:
        raise EnvironmentUnfit(f"{base}/version: {error}.", "Give the address of a vLLM server.") from error
    metrics = _get(base, "/metrics")
    if "vllm:" not in metrics:
        raise EnvironmentUnfit(f"{base}/metrics shows no metric of vLLM.", "Start vLLM without --disable-log-stats.")
    models: list[dict[str, Any]] = []
    with suppress(EnvironmentUnfit):
        models = _json(base, "/v1/models").get("data", [])
    counters = parse_draft_counters(metrics)
    return RunningServer(
        url=base,
        version=version,
        models=tuple(str(model.get("id")) for model in models),
        max_model_len=next((model["max_model_len"] for model in models if model.get("max_model_len")), None),
        running=_sum(metrics, "vllm:num_requests_running"),
        waiting=_sum(metrics, "vllm:num_requests_waiting"),
        k_max=_positions(metrics),
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted_tokens=counters.accepted_tokens,
    )


def _sum(metrics: str, name: str) -> int:
    """Over all engines of the server."""
    return int(sum(float(value) for found, _, value in _SAMPLE.findall(metrics) if found == name))


def _positions(metrics: str) -> int | None:
    """vLLM counts acceptance at every position up to its K_max from the start, and none without speculation."""
    labels = (labels for found, labels, _ in _SAMPLE.findall(metrics) if found == _POSITION)
    positions = [int(match[1]) for match in map(re.compile(r'position="(\d+)"').search, labels) if match]
    return max(positions) + 1 if positions else None


def _json(base: str, path: str) -> dict[str, Any]:
    try:
        answer = json.loads(_get(base, path))
    except ValueError as error:
        raise EnvironmentUnfit(f"{base}{path} answers no JSON.", "Give the address of a vLLM server.") from error
    if not isinstance(answer, dict):
        raise EnvironmentUnfit(f"{base}{path} answers no JSON object.", "Give the address of a vLLM server.")
    return answer


def _get(base: str, path: str) -> str:
    try:
        with _open(f"{base}{path}", timeout=_LIMIT_S) as page:
            return str(page.read().decode(errors="replace"))
    except (URLError, HTTPException, OSError) as error:
        raise EnvironmentUnfit(
            f"{base}{path} does not answer: {error}.", "Is it a vLLM server, and running?"
        ) from error
