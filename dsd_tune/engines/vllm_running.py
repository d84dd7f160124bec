"""Asks a running server what it is and what it has drafted so far. Sends no traffic of its own."""

from __future__ import annotations

import json
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from dsd_tune.engines.scrape import Scrape, require_address
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.records.release import Release
from dsd_tune.records.running import RunningServer

_LIMIT_S = 10
_POSITIONS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
# As in scrape: a server is asked directly.
_open = build_opener(ProxyHandler({})).open


def ask(url: str) -> RunningServer:
    """What the server at `url` says on /version, /metrics and /v1/models; the last may want a key, and is optional.

    Raises:
        UsageError: this is no address of a web server.
        EnvironmentUnfit: no vLLM answers there.
    """
    require_address(url)
    base = url.rstrip("/")
    version = str(_json(base, "/version").get("version", ""))
    try:
        Release.parse(version)
    except ValueError as error:
        raise EnvironmentUnfit(f"{base}/version: {error}.", "Give the address of a vLLM server.") from error
    metrics = Scrape.parse(_get(base, "/metrics"))
    if not metrics.has("vllm:num_requests_running"):
        raise EnvironmentUnfit(f"{base}/metrics shows no load of vLLM.", "Start vLLM without --disable-log-stats.")
    models: list[dict[str, Any]] = []
    with suppress(EnvironmentUnfit):
        models = _json(base, "/v1/models").get("data", [])
    return RunningServer(
        url=base,
        version=version,
        models=tuple(str(model.get("id")) for model in models),
        max_model_len=next((model["max_model_len"] for model in models if model.get("max_model_len")), None),
        running=int(metrics.total("vllm:num_requests_running")),
        waiting=int(metrics.total("vllm:num_requests_waiting")),
        # vLLM counts acceptance at every position up to its K_max from the start, and at none without speculation.
        k_max=len(metrics.by(_POSITIONS, "position")) or None,
        drafts=int(metrics.total("vllm:spec_decode_num_drafts_total")),
        draft_tokens=int(metrics.total("vllm:spec_decode_num_draft_tokens_total")),
        accepted_tokens=int(metrics.total("vllm:spec_decode_num_accepted_tokens_total")),
    )


def told_version(url: str) -> str | None:
    """The vLLM that a server says it is; None where something in between does not tell."""
    try:
        return str(_json(url.rstrip("/"), "/version")["version"])
    except (EnvironmentUnfit, KeyError):
        return None


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
            f"{base}{path} does not answer: {error}.", "Is it a vLLM server, and is it up?"
        ) from error
