"""Results of `vllm bench serve`: one JSON object a run, or a list of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import cast

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.importers.columns import FACTS
from dsd_tune.importers.counters import Counters
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import RESTART_SD, Found
from dsd_tune.importers.judge import Dropped, judge, remarks_on
from dsd_tune.importers.reading import Reading
from dsd_tune.records.measurement import Arm
from dsd_tune.records.published import Fact, PublishedRow

_TABLE = "num_speculative_tokens_per_batch_size"

Result = Mapping[str, object]

_KNOWN = frozenset({"output_throughput", "mean_tpot_ms", "median_tpot_ms", "mean_itl_ms", "max_concurrency"})


def bench_results(document: object) -> list[Result]:
    """The results in a JSON value: one, or a list of them. Empty if it holds something else."""
    found = document if isinstance(document, list) else [document]
    results: list[Result] = [result for result in found if isinstance(result, dict) and result.keys() & _KNOWN]
    return results if len(results) == len(found) else []


def read_results(results: Iterable[tuple[str, Result]], declared: Declared) -> Found:
    """Rows of results, each with the name to quote it by.

    Raises:
        UsageError: a result has no concurrency, no time, or counters of more than one K.
        ProfileMismatch: two results are of unlike environments; names the key.
    """
    results = list(results)
    rows: list[PublishedRow] = []
    remarks: list[str] = []
    lengths = []
    for source, result in results:
        try:
            reading = _reading(source, result)
            rows.append(judge(reading, declared))
        except Dropped as reason:
            remarks.append(f"left out: {reason}")
            continue
        lengths += _output_length(result)
        remarks += remarks_on(reading, rows[-1], declared)
    return Found(
        tuple(rows),
        facts=_facts(results),
        output_lengths=tuple(lengths),
        remarks=tuple(remarks),
        start_sd=RESTART_SD,
    )


def _reading(source: str, result: Result) -> Reading:
    if _number(source, result, "failed"):
        raise Dropped(f"{source} has {result['failed']} failed requests")
    config = _config(source, result)
    tpot_ms = _number(source, result, "mean_tpot_ms") or _number(source, result, "median_tpot_ms")
    dataset = result.get("dataset_name")
    method = config.get("method")
    return Reading(
        source=source,
        offered=_count(source, result, "max_concurrency"),
        arm=_arm(config),
        k=_k(source, config),
        tpot_s=tpot_ms / 1e3 if tpot_ms else None,
        output_tok_s=_number(source, result, "output_throughput") or None,
        has_itl="mean_itl_ms" in result or "median_itl_ms" in result,
        counters=_counters(source, result),
        method=str(method) if method else None,
        dataset=str(dataset) if dataset else None,
    )


def _config(source: str, result: Result) -> Result:
    config = result.get("speculative_config") or {}
    if not isinstance(config, dict):
        raise UsageError(f"{source}: speculative_config is no object.", "Import the file as vLLM wrote it.")
    return config


def _arm(config: Result) -> Arm | None:
    """A sweep records the speculative config of its engines; without one the file does not tell."""
    if not config:
        return None
    return Arm.DSD if config.get(_TABLE) else Arm.STATIC


def _k(source: str, config: Result) -> int | None:
    table = config.get(_TABLE)
    if isinstance(table, list) and table:
        ks = {entry[-1] for entry in table if isinstance(entry, list) and entry and type(entry[-1]) is int}
        if len(ks) != 1:
            raise Dropped(f"{source} ran under a table of {len(ks)} Ks, so it has no K")
        return ks.pop()
    return _count(source, config, "num_speculative_tokens")


def _counters(source: str, result: Result) -> Counters | None:
    """vLLM leaves the whole group out where no draft was made: acceptance is then undefined, and not 0."""
    drafts = _count(source, result, "spec_decode_num_drafts")
    if not drafts:
        return None
    rates = cast(list[float], result.get("spec_decode_per_position_acceptance_rates") or [])
    try:
        return Counters(
            drafts=drafts,
            draft_tokens=_count(source, result, "spec_decode_draft_tokens") or 0,
            accepted=_count(source, result, "spec_decode_accepted_tokens") or 0,
            by_position=tuple(round(rate * drafts) for rate in rates),
            output_tokens=_count(source, result, "total_output_tokens"),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{source}: {error}.", "Import the file as vLLM wrote it.") from error


def _output_length(result: Result) -> list[float]:
    tokens, requests = result.get("total_output_tokens"), result.get("completed")
    return [tokens / requests] if isinstance(tokens, int) and isinstance(requests, int) and requests else []


def _facts(results: Iterable[tuple[str, Result]]) -> tuple[Fact, ...]:
    found: dict[str, str] = {}
    for source, result in results:
        config = _config(source, result)
        stated = {key: value for key, value in result.items() if key in FACTS and value not in (None, "")}
        stated |= {"method": config["method"]} if "method" in config else {}
        stated |= {"drafter": config["model"]} if "model" in config else {}
        for key, value in stated.items():
            known = found.setdefault(key, str(value))
            if known != str(value):
                raise ProfileMismatch(
                    f"{source} is of another environment than those before ({key}: {known!r} against {str(value)!r}).",
                    "Import results of one environment at a time.",
                )
    return tuple(Fact(key, value) for key, value in found.items())


def _number(source: str, result: Result, key: str) -> float | None:
    value = result.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{source}: {key} is {value!r}, no number.", "Import the file as vLLM wrote it.")
    return float(value)


def _count(source: str, result: Result, key: str) -> int | None:
    value = _number(source, result, key)
    return None if value is None else round(value)
