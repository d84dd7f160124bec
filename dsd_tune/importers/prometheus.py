"""Prometheus text of a vLLM server: acceptance from its counters, as the difference of two scrapes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.importers.counters import Counters, acceptance
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Found
from dsd_tune.records.published import Fact

Series = tuple[str, frozenset[tuple[str, str]]]
"""A metric's name and its labels."""

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_OUTPUT = "vllm:generation_tokens_total"
_COUNTERS = frozenset({_DRAFTS, _DRAFT_TOKENS, _ACCEPTED, _BY_POSITION, _OUTPUT})
_START = "process_start_time_seconds"


def is_prometheus(text: str) -> bool:
    """Whether a text holds vLLM's speculative counters."""
    return any(line.startswith("vllm:") for line in text.splitlines())


def read_scrapes(after: tuple[Path, str], before: tuple[Path, str] | None, declared: Declared) -> Found:
    """Acceptance between two scrapes, summed over engines; of one scrape alone, since the server started.

    Raises:
        UsageError: no drafts, a restart between the scrapes, several models, or several Ks.
    """
    path, text = after
    counted = _scrape(path, text)
    remarks: tuple[str, ...] = (
        f"{path.name} is one scrape: its counts go back to the server's start, warm-up included",
    )
    if before is not None:
        counted, remarks = _difference(_scrape(*before), counted, path), ()
    models = {dict(labels).get("model_name") for _, labels in counted} - {None}
    if len(models) > 1:
        raise UsageError(f"{path} counts several models ({', '.join(sorted(map(str, models)))}).", "Scrape one server.")
    found = acceptance(_counters(path, counted), None, declared.method, path.name)
    return Found(acceptance=(found,), facts=tuple(Fact("model_name", str(m)) for m in models), remarks=remarks)


def _scrape(path: Path, text: str) -> dict[Series, float]:
    """The counters by exact name: `_created` and `_per_pos` have names that hold the others'."""
    counted: dict[Series, float] = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if sample is None or sample["name"] not in _COUNTERS | {_START}:
            continue
        labels = frozenset(_LABEL.findall(sample["labels"] or ""))
        counted[sample["name"], labels] = _value(path, line, sample["value"])
    return counted


def _value(path: Path, line: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{path}: {line!r} has no number.", "Scrape /metrics again.")
    return value


def _difference(before: Mapping[Series, float], after: Mapping[Series, float], path: Path) -> dict[Series, float]:
    """Each series by itself: a sum may rise although one engine began anew."""
    lost = [series for series in before if series not in after or after[series] < before[series]]
    moved = [s for s in before if s[0] == _START and after.get(s) != before[s]]
    if lost or moved:
        name, labels = (lost or moved)[0]
        which = ",".join(f"{key}={value}" for key, value in sorted(labels))
        raise UsageError(
            f"the server restarted before {path} was scraped: {name}{{{which}}} fell.",
            "Give two scrapes of one server's life, the earlier one first.",
        )
    return {series: value - before.get(series, 0.0) for series, value in after.items() if series[0] != _START}


def _counters(path: Path, counted: Mapping[Series, float]) -> Counters:
    sums: dict[str, float] = defaultdict(float)
    by_position: dict[int, float] = defaultdict(float)
    for (name, labels), value in counted.items():
        sums[name] += value
        position = dict(labels).get("position", "")
        if name == _BY_POSITION and position.isdecimal():
            by_position[int(position)] += value
    if not sums[_DRAFTS]:
        raise UsageError(f"{path} counts no drafts.", "Scrape a server that speculates, before and after traffic.")
    try:
        return Counters(
            drafts=round(sums[_DRAFTS]),
            draft_tokens=round(sums[_DRAFT_TOKENS]),
            accepted=round(sums[_ACCEPTED]),
            by_position=tuple(round(by_position[i]) for i in range(len(by_position))),
            output_tokens=round(sums[_OUTPUT]) or None,
        )
    except ValueError as error:
        raise UsageError(f"{path}: {error}.", "Scrape /metrics again.") from error
