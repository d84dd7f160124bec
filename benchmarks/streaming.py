"""A client that notes when each token of a real server's answer comes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from urllib.parse import urlsplit


def asked(model: str, text: str, limit: int) -> dict[str, object]:
    """A greedy answer of at most `limit` tokens."""
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": limit, "temperature": 0}


@dataclass(slots=True)
class Stream:
    """One request as its client saw it: when it was sent, when each chunk came, and the tokens received by then."""

    sent_s: float = 0.0
    prompt_tokens: int = 0
    at_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def completion_s(self) -> float:
        """From the request to its last token."""
        return self.at_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float:
        """Time per output token after the first chunk, which a request of one chunk does not have."""
        return (self.at_s[-1] - self.at_s[0]) / (self.tokens[-1] - self.tokens[0])

    def listen(self, url: str, path: str, body: Mapping[str, object]) -> None:
        """Send one request and read its answer to the end."""
        usage = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        connection = HTTPConnection(urlsplit(url).netloc, timeout=600)
        self.sent_s = time.perf_counter()
        connection.request("POST", path, json.dumps({**body, **usage}), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                self._note(json.loads(line[6:]).get("usage"))
        connection.close()

    def _note(self, usage: Mapping[str, int] | None) -> None:
        if usage and usage["completion_tokens"] > (self.tokens[-1] if self.tokens else 0):
            self.prompt_tokens = usage["prompt_tokens"]
            self.at_s.append(time.perf_counter())
            self.tokens.append(usage["completion_tokens"])
