"""Options that hold several numbers, as in `--context 512,4096`."""

from __future__ import annotations

import math

from dsd_tune.errors import UsageError

SHORTEST_CONTEXT = 64
"""Below it a block would not fit beside its prompt."""


def stated_contexts(text: str) -> tuple[int, ...]:
    """`--context`, rising.

    Raises:
        UsageError: no list of whole numbers, or one is too small.
    """
    contexts = _numbers("--context", text, "512,4096")
    if any(not context.is_integer() or context < SHORTEST_CONTEXT for context in contexts):
        raise UsageError(f"--context {text} is no list of tokens from {SHORTEST_CONTEXT} up.", "Write 512,4096.")
    return tuple(map(int, contexts))


def stated_temperatures(text: str) -> tuple[float, ...]:
    """`--temperature`, rising.

    Raises:
        UsageError: no list of numbers, or one is negative.
    """
    temperatures = _numbers("--temperature", text, "0,0.7")
    if temperatures[0] < 0:
        raise UsageError(f"--temperature {text} is no temperature.", "Give 0 for greedy, or what you serve.")
    return temperatures


def _numbers(flag: str, text: str, example: str) -> tuple[float, ...]:
    """Finite numbers, rising, each once."""
    try:
        numbers = sorted({float(word) for word in text.split(",")})
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise UsageError(f"{flag} {text} is no list of numbers.", f"Write {example}.")
    return tuple(numbers)
