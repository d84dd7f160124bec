"""Keeps exactly B requests decoding on a server for as long as its counters are read. Standard library only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from dsd_tune.engines.scrape import Scrape, require_address
from dsd_tune.errors import EngineFailed

TOKENS = 400
"""Enough for a reading of a fast server, and within the context of a small one."""
STEPS = 16
"""Steps in a reading."""
LIMIT_S = 60.0
IDLE_S = 10.0
_PROMPT = "Tell a long story, number {}, about a river, a bridge and the people who live on both banks."
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    """What vLLM counted while exactly `batch_size` requests decoded."""

    batch_size: int
    drafts: float
    draft_tokens: float

    @property
    def k(self) -> float:
        """Draft tokens in one draft; 0 where nothing was drafted."""
        return self.draft_tokens / self.drafts if self.drafts else 0.0


def read_at(url: str, batch_size: int, pause: Callable[[float], None] = time.sleep) -> Reading:
    """Hold `batch_size` requests on an idle server, and read its counters over some steps.

    Raises:
        UsageError: `url` is no address.
        EngineFailed: the server refuses, has other traffic, or its requests end before a reading is done.
    """
    require_address(url)
    _require_idle(url, pause)
    with ExitStack() as stack:
        model = _model(url)
        for number in range(batch_size):
            stack.enter_context(_request(url, model, number))
        before = _once_running(url, batch_size, pause)
        for _ in range(int(LIMIT_S / _POLL_S)):
            pause(_POLL_S)
            after = Scrape.fetch(url)
            if _running(after) != batch_size:
                break
            gained = after.since(before)
            if gained.total("vllm:generation_tokens_total") >= STEPS * batch_size:
                drafts = gained.total("vllm:spec_decode_num_drafts_total")
                return Reading(batch_size, drafts, gained.total("vllm:spec_decode_num_draft_tokens_total"))
    raise EngineFailed(f"{url} did not decode {batch_size} requests for long enough.", "Probe it while it is idle.")


def _require_idle(url: str, pause: Callable[[float], None]) -> None:
    """Requests that were just left take a moment to end."""
    for _ in range(int(IDLE_S / _POLL_S)):
        if not _running(Scrape.fetch(url)):
            return
        pause(_POLL_S)
    raise EngineFailed(f"{url} has other requests.", "Probe it while it is idle.")


def _once_running(url: str, batch_size: int, pause: Callable[[float], None]) -> Scrape:
    """The counters once all requests decode."""
    for _ in range(int(LIMIT_S / _POLL_S)):
        if _running(Scrape.fetch(url)) == batch_size:
            # Two polls later the last prefill has long drafted.
            pause(2 * _POLL_S)
            return Scrape.fetch(url)
        pause(_POLL_S)
    raise EngineFailed(f"{url} does not run {batch_size} requests at a time.", "Raise its --max-num-seqs.")


def _running(scrape: Scrape) -> int:
    return int(scrape.total("vllm:num_requests_running"))


def _model(url: str) -> str:
    with _answer(url, "GET", "/v1/models", None) as answer:
        try:
            return str(json.load(answer)["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise EngineFailed(f"{url} names no model.", "Is that a vLLM server?") from error


@contextmanager
def _request(url: str, model: str, number: int) -> Iterator[None]:
    """A request that runs until the block ends: vLLM aborts it when nobody listens any more."""
    body = {"model": model, "prompt": _PROMPT.format(number), "max_tokens": TOKENS, "temperature": 0}
    with _answer(url, "POST", "/v1/completions", {**body, "ignore_eos": True, "stream": True}):
        yield


@contextmanager
def _answer(url: str, method: str, path: str, body: dict[str, object] | None) -> Iterator[HTTPResponse]:
    place = urlsplit(url)
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.netloc, timeout=LIMIT_S)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, place.path.rstrip("/") + path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise EngineFailed(f"{url}{path} answers {answer.status}.", "Is that a vLLM server, and is it up?")
        yield answer
    except (HTTPException, OSError) as error:
        raise EngineFailed(f"{url} does not answer: {error}.", "Is that a vLLM server, and is it up?") from error
    finally:
        connection.close()
