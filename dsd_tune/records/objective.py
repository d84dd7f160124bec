"""What a decision saves."""

from __future__ import annotations

from enum import StrEnum


class Objective(StrEnum):
    """What is averaged over batch sizes."""

    TPOT = "tpot"
    """The time of a token of a request: every moment counts alike, however many requests share it."""
    THROUGHPUT = "throughput"
    """Tokens of all requests: a moment counts by how many it yields."""
