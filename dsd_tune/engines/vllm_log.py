"""What a log of vLLM says about why it ended."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_PREFIX = re.compile(r"^\(.*?\) (?:ERROR \S+ \S+ \[.*?\] )?")
_COMPLAINT = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b: *\S")
_POINTER = re.compile(r"[Ss]ee (?:root cause|stack trace)")


def last_words(log: Path) -> str:
    """A sentence with the complaint that ended a program: the last line naming an exception, else the last line.

    vLLM wraps a worker's failure into an error that only points at it, so such pointers are passed over.
    """
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in (_PREFIX.sub("", line) for line in text.splitlines()) if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.match(line) and not _POINTER.search(line)]
    chosen = (complaints or lines or ["nothing"])[-1]
    return f"Its last words: {chosen.rstrip('.')}."
