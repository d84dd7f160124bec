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
    contexts = sorted(set(_numbers("--context", text, "512,4096")))
    if any(not context.is_integer() or context < SHORTEST_CONTEXT for context in contexts):
        raise UsageError(f"--context {text} is no list of tokens from {SHORTEST_CONTEXT} up.", "Write 512,4096.")
    return tuple(map(int, contexts))


def stated_temperatures(text: str) -> tuple[float, ...]:
    """`--temperature`, rising.

    Raises:
        UsageError: no list of numbers, or one is negative.
    """
    temperatures = sorted(set(_numbers("--temperature", text, "0,0.7")))
    if temperatures[0] < 0:
        raise UsageError(f"--temperature {text} is no temperature.", "Give 0 for greedy, or what you serve.")
    return tuple(temperatures)


def stated_acceptance(text: str | None) -> tuple[float, ...]:
    """`--synthetic-acceptance`: the share of steps that accept each position; empty if it is not given.

    Raises:
        UsageError: no list of shares, or one is above the share before it.
    """
    if text is None:
        return ()
    shares = _numbers("--synthetic-acceptance", text, "0.7,0.5,0.3")
    if shares[0] > 1 or shares[-1] < 0 or list(shares) != sorted(shares, reverse=True):
        raise UsageError(
            f"--synthetic-acceptance {text} is no list of shares of steps, none above the one before.",
            "A position counts as accepted only with all before it: write 0.7,0.5,0.3.",
        )
    return shares


def _numbers(flag: str, text: str, example: str) -> tuple[float, ...]:
    """Finite numbers."""
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise UsageError(f"{flag} {text} is no list of numbers.", f"Write {example}.")
    return numbers
