"""Traffic traces of others, one request a line, read as a stream: CSV by its header, JSON lines by their keys."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from dsd_tune.errors import UsageError
from dsd_tune.records.trace import Request


def read_trace(path: Path, sec_multiplier: float | None = None) -> Iterator[Request]:
    """Requests in the order of their arrival, the first at 0 s.

    Timestamps in JSON lines are seconds after multiplication with `sec_multiplier`, as in vLLM's `timed_trace`: the
    same keys are in use for seconds and for milliseconds.

    Raises:
        UsageError: no such file, no layout that is known, a line that makes no request, or one that goes back in time.
    """
    began = last = None
    for number, (layout, line) in enumerate(_lines(path), start=1):
        if layout.time is None:
            raise UsageError(f"{path} has no arrival times.", "Give it as --lengths, with --poisson or --rollout.")
        factor = _factor(path, layout, sec_multiplier)
        request = _request(f"{path}, request {number},", layout, line, factor)
        began = request.arrival_s if began is None else began
        if last is not None and request.arrival_s < last:
            raise UsageError(f"{path}, request {number}, comes before the one above it.", "Sort the file by time.")
        last = request.arrival_s
        yield Request(request.arrival_s - began, request.prompt_tokens, request.output_tokens)


def read_lengths(path: Path) -> Iterator[Request]:
    """Requests with the lengths in a trace, or in a CSV file of lengths alone; from its beginning again, for ever.

    Raises:
        UsageError: as `read_trace`, except that times do not matter.
    """
    while True:
        number = 0
        for number, (layout, line) in enumerate(_lines(path), start=1):
            yield _request(f"{path}, request {number},", layout, line, None)
        if not number:
            raise UsageError(f"{path} holds no request.", "Give a file with at least one.")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a line has its numbers; `time` is None for lengths alone, `seconds` reads a time that is no number."""

    prompt: str
    output: str
    time: str | None = None
    seconds: Callable[[Any], float] = float
    has_unit: bool = True


def _of_date(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


_AZURE = _Layout("contexttokens", "generatedtokens", "timestamp", _of_date)
_PLAIN = _Layout("prompt_tokens", "output_tokens", "arrival_s")
_LENGTHS = _Layout("prompt_tokens", "output_tokens")
_JSON = _Layout("input_length", "output_length", "timestamp", has_unit=False)

_CSV_LAYOUTS = (_AZURE, _PLAIN, _LENGTHS)


def _lines(path: Path) -> Iterator[tuple[_Layout, Mapping[str, Any]]]:
    """Each line with its layout; the file is read as it is consumed."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            lines = chain([first], file)
            yield from _json_lines(path, lines) if first.lstrip().startswith("{") else _csv_lines(path, lines)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no text with a request a line: {error}.", "Unpack or convert it.") from error


def _json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[_Layout, Mapping[str, Any]]]:
    for number, line in enumerate((line for line in lines if line.strip()), start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}, request {number}, is not JSON: {error}.", "Correct the file.") from error
        if not isinstance(value, dict):
            raise UsageError(f"{path}, request {number}, is no JSON object.", "Correct the file.")
        yield _JSON, value


def _csv_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[_Layout, Mapping[str, Any]]]:
    rows = csv.reader(line for line in lines if not line.lstrip().startswith("#"))
    header = [name.strip().lower() for name in next(rows, [])]
    layout = next((one for one in _CSV_LAYOUTS if {one.prompt, one.output, one.time} - {None} <= set(header)), None)
    if layout is None:
        raise UsageError(
            f"{path} is no trace that is known.",
            "Give CSV with the columns arrival_s,prompt_tokens,output_tokens or TIMESTAMP,ContextTokens,"
            "GeneratedTokens, or JSON lines with timestamp, input_length and output_length.",
        )
    for row in rows:
        if row:
            yield layout, dict(zip(header, row, strict=False))


def _factor(path: Path, layout: _Layout, sec_multiplier: float | None) -> float:
    if layout.has_unit:
        return 1.0
    if sec_multiplier is None:
        raise UsageError(
            f"{path} does not say the unit of its timestamps.",
            "Give --timed-trace-sec-multiplier 1 for seconds or 0.001 for milliseconds (Mooncake).",
        )
    return sec_multiplier


def _request(where: str, layout: _Layout, line: Mapping[str, Any], factor: float | None) -> Request:
    """The request in a line; `factor` makes seconds of its time, None leaves the time out."""
    try:
        arrival_s = 0.0 if factor is None or layout.time is None else layout.seconds(line[layout.time]) * factor
        return Request(arrival_s, _count(line[layout.prompt]), _count(line[layout.output]))
    except KeyError as error:
        raise UsageError(f"{where} lacks {error.args[0]}.", "Correct the file.") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where} is damaged: {error}.", "Correct the file.") from error


def _count(value: Any) -> int:  # noqa: ANN401 (a cell of CSV or any JSON value)
    """Spreadsheets and JSON write whole numbers as 8.0, too."""
    number = float(value)
    if not number.is_integer() or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number of tokens")
    return int(number)
