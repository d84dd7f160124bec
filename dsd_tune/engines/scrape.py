"""One reading of a server's `/metrics`, and what was counted between two. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from dsd_tune.errors import EngineFailed, UsageError

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LIMIT_S = 10.0
# A server is asked directly: a proxy of the environment is for other places.
_open = build_opener(ProxyHandler({})).open

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """Samples by name and labels. Engines and models of one server are added up by whoever asks."""

    samples: Mapping[tuple[str, Labels], float]

    @classmethod
    def parse(cls, text: str) -> Scrape:
        """From Prometheus text; lines that are no samples are left out."""
        matches = (_SAMPLE.match(line) for line in text.splitlines() if not line.startswith("#"))
        return cls({(m[1], tuple(sorted(_LABEL.findall(m[2] or "")))): float(m[3]) for m in matches if m})

    @classmethod
    def fetch(cls, url: str) -> Scrape:
        """Ask the server at `url`.

        Raises:
            UsageError: that is no http address.
            EngineFailed: it does not answer with metrics.
        """
        require_address(url)
        try:
            with _open(f"{url.rstrip('/')}/metrics", timeout=_LIMIT_S) as page:
                return cls.parse(page.read().decode())
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise EngineFailed(f"{url} does not answer: {error}.", "Is that a vLLM server, and is it up?") from error

    def since(self, earlier: Scrape) -> Scrape:
        """What counters gained. Gauges make no sense in it."""
        return Scrape({key: value - earlier.samples.get(key, 0.0) for key, value in self.samples.items()})

    def has(self, name: str) -> bool:
        """Whether there is such a metric."""
        return any(True for _ in self._of(name))

    def total(self, name: str, **labels: str) -> float:
        """The sum over all other labels; 0 where there is none."""
        return sum(value for found, value in self._of(name) if labels.items() <= dict(found).items())

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Sums by the values of some labels, in the order of the server."""
        sums: dict[tuple[str, ...], float] = {}
        for found, value in self._of(name):
            key = tuple(dict(found).get(label, "") for label in labels)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def _of(self, name: str) -> Iterator[tuple[Labels, float]]:
        return ((labels, value) for (found, labels), value in self.samples.items() if found == name)


def require_address(url: str) -> None:
    """Raise UsageError if `url` does not say how to reach a server."""
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
        raise UsageError(f"{url} is no address of a server.", "Write it as http://host:8000.")
