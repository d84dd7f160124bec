"""Model-Optimizer's `speculation_profile.json`: how good a drafter is, without any time. Schema 1.0."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TypeGuard

from dsd_tune.errors import UsageError
from dsd_tune.importers.found import Found
from dsd_tune.records.published import Fact, PublishedAcceptance

_AGREES = 0.02
"""By how much the schema lets a mean differ from the one that its rates imply."""


def is_speculation_profile(document: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a JSON value claims to be one."""
    return isinstance(document, dict) and "schema_version" in document and "marginal_accept_rates" in document


def read_speculation_profile(document: Mapping[str, object], where: str) -> Found:
    """Acceptance at every K that the file measured, or that follows from its rates.

    The first drafts of a chain do not depend on K, so its rates tell every smaller K; of all other drafters only the Ks
    count that were measured.

    Raises:
        UsageError: a later schema, nothing measured, another way to verify than the longest prefix, or a bad number.
    """
    if not str(document["schema_version"]).startswith("1."):
        raise UsageError(f"{where} has schema {document['schema_version']}, and 1.x is known.", "Upgrade dsd-tune.")
    if document.get("measured") is not True:
        raise UsageError(f"{where} is a placeholder: nothing was measured.", "Measure the drafter.")
    if document.get("verification_method", "longest_prefix") != "longest_prefix":
        raise UsageError(
            f"{where} was verified by {document['verification_method']}, and vLLM accepts the longest prefix.",
            "Measure acceptance in vLLM.",
        )
    try:
        found = tuple(_acceptances(document, where))
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{where} is damaged: {error}.", "Write it again.") from error
    method = document.get("method")
    return Found(
        acceptance=found,
        facts=(Fact("method", str(method)),) if method else (),
        remarks=(f"{where}: acceptance at K {', '.join(str(item.k) for item in found)} of {_subject(document)}",),
    )


def _acceptances(document: Mapping[str, object], where: str) -> Iterator[PublishedAcceptance]:
    rates, lengths = _rates(document), _lengths(document)
    implied = dict(enumerate(accumulate(rates, initial=1.0)))
    # Rates that were cut short, or pooled over several Ks, describe none of the lengths that were measured.
    agree = all(abs(implied.get(k, 0.0) - length) <= _AGREES for k, length in lengths.items())
    if agree and document.get("accept_length_model") == "chain_analytic":
        lengths = {k: length for k, length in implied.items() if k} | lengths
    if not lengths:
        raise ValueError("it holds no acceptance length")
    for k, length in sorted(lengths.items()):
        yield PublishedAcceptance(k, length, rates[:k] if agree else (), None, where)


def _rates(document: Mapping[str, object]) -> tuple[float, ...]:
    rates = document["marginal_accept_rates"]
    if not isinstance(rates, list):
        raise TypeError("marginal_accept_rates is no list")
    return tuple(_number(rate) for rate in rates)


def _lengths(document: Mapping[str, object]) -> dict[int, float]:
    by_k = document.get("accept_length_by_k") or {}
    if not isinstance(by_k, dict):
        raise TypeError("accept_length_by_k is no object")
    return {int(k): _number(length) for k, length in by_k.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _subject(document: Mapping[str, object]) -> str:
    """Which drafter with which target, and under which conditions, as the file says."""
    keys = ("draft_checkpoint", "target_model", "measurement_conditions")
    return json.dumps({key: document[key] for key in keys if document.get(key)})
