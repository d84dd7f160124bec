"""Requests to servers that a benchmark started, and what became of them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.request import ProxyHandler, Request, build_opener

from streaming import asked

_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True, slots=True)
class Served:
    """One request as it went."""

    output_tokens: int
    completion_s: float
    text: str


def chat(url: str, model: str, text: str, tokens: int) -> Served:
    """Let the model answer with exactly so many tokens, greedily."""
    body = json.dumps({**asked(model, text, tokens), "ignore_eos": True}).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/v1/chat/completions", body, headers)  # noqa: S310 (our own loopback)
    began = time.monotonic()
    with _open(request, timeout=600) as page:
        answer = json.load(page)
    text = answer["choices"][0]["message"]["content"]
    return Served(answer["usage"]["completion_tokens"], time.monotonic() - began, text)


def all_at_once(asks: Iterable[Callable[[], Served]]) -> list[Served]:
    """Send all requests together, and wait for the last token of the last."""
    due = list(asks)
    with ThreadPoolExecutor(len(due)) as pool:
        return [one.result() for one in [pool.submit(ask) for ask in due]]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
