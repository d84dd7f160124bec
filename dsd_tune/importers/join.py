"""Several files into one import: only what describes one environment, each row at the batch that really ran."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import GRID_SD, Found, Running
from dsd_tune.model.caveats import is_flat_in_k
from dsd_tune.records.published import Fact, Published, PublishedRow

_SUFFIX = re.compile(r"\bsuffix\b", re.IGNORECASE)

SAME_DEPTH = 1.5
"""Mean output lengths may differ by this factor: step time and acceptance both change with depth."""


def join(found: Sequence[Found], declared: Declared, created_at_s: float, version: str) -> Published:
    """One import of all that was found.

    Raises:
        ProfileMismatch: the files are of unlike environments; names the key.
        UsageError: nothing is left, rows were chosen by an unknown column, or the method has no use for a table.
    """
    _refuse_unknown_columns(found, declared)
    facts = _facts(found, declared)
    _refuse_suffix(facts, [row for part in found for row in part.rows])
    running = _running(found)
    rows, dropped = _keyed_by_running([row for part in found for row in part.rows], running)
    acceptance = tuple(item for part in found for item in part.acceptance)
    remarks = (*dict.fromkeys(remark for part in found for remark in part.remarks), *dropped)
    if not rows and not acceptance:
        unused = "; ".join([*remarks, *(str(seen) for seen in running.values() if seen.is_mixed)])
        raise UsageError(f"nothing is left to import: {unused or 'no row was chosen'}.", "Give measurements beside it.")
    return Published(
        rows=rows,
        acceptance=acceptance,
        facts=facts,
        cell_sd=GRID_SD,
        start_sd=max(part.start_sd for part in found),
        remarks=remarks,
        created_at_s=created_at_s,
        dsd_tune_version=version,
    )


def _refuse_unknown_columns(found: Iterable[Found], declared: Declared) -> None:
    columns = {name for part in found for name in part.columns}
    for option, names in (("where", declared.where), ("unit", declared.units)):
        for name, _ in names:
            if name not in columns:
                raise UsageError(f"no file has the column {name}.", f"Correct --{option}.")


def _facts(found: Sequence[Found], declared: Declared) -> tuple[Fact, ...]:
    known: dict[str, str] = {"method": declared.method} if declared.method else {}
    for fact in (fact for part in found for fact in part.facts):
        before = known.setdefault(fact.key, fact.value)
        if before != fact.value:
            raise ProfileMismatch(
                f"the files are of unlike environments ({fact.key}: {before!r} against {fact.value!r}).",
                "Import them into runs of their own.",
            )
    return tuple(Fact(key, value) for key, value in (known | _depth(found)).items())


def _depth(found: Iterable[Found]) -> dict[str, str]:
    lengths = sorted(length for part in found for length in part.output_lengths)
    if not lengths:
        return {}
    if lengths[-1] > SAME_DEPTH * lengths[0]:
        raise ProfileMismatch(
            "the files are of unlike environments "
            f"(output tokens a request: {lengths[0]:.0f} against {lengths[-1]:.0f}).",
            "Compare runs of one output length.",
        )
    return {"output tokens a request": f"{sum(lengths) / len(lengths):.0f}"}


def _refuse_suffix(facts: Iterable[Fact], rows: Iterable[PublishedRow]) -> None:
    if any(fact.key in ("method", "drafter") and _SUFFIX.search(fact.value) for fact in facts):
        flat = ", TPOT does not move with it here" if is_flat_in_k(rows) else ""
        raise UsageError(
            f"suffix decoding drafts what it finds in each request: K is only a cap{flat}, and vLLM runs no table "
            "with it.",
            "Serve it with one num_speculative_tokens.",
        )


def _running(found: Iterable[Found]) -> dict[int, Running]:
    """What ran at each offered concurrency, from logs."""
    known: dict[int, Running] = {}
    for seen in (seen for part in found for seen in part.running):
        before = known.setdefault(seen.offered, seen)
        if before.running != seen.running:
            raise ProfileMismatch(
                f"of {seen.offered} offered {before.running} ran ({before.source}), {seen.running} ({seen.source}).",
                "Choose one environment with --where COLUMN=VALUE.",
            )
    return known


def _keyed_by_running(
    rows: Iterable[PublishedRow], running: dict[int, Running]
) -> tuple[tuple[PublishedRow, ...], tuple[str, ...]]:
    kept = []
    left_out: dict[int, int] = {}
    for row in rows:
        seen = running.get(row.cell.batch_size)
        if seen is None:
            kept.append(row)
        elif seen.is_mixed:
            left_out[seen.offered] = left_out.get(seen.offered, 0) + 1
        else:
            kept.append(replace(row, cell=replace(row.cell, batch_size=seen.running)))
    remarks = tuple(
        f"left out {count} of batch size {offered}: {running[offered]}" for offered, count in left_out.items()
    )
    return tuple(kept), remarks
