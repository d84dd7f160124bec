"""CSV grids: one row a cell, with `# key: value` comments above. Also acceptance tables and logs of what really ran."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.importers.columns import CONTEXT, Column, Quantity, column
from dsd_tune.importers.counters import Counters
from dsd_tune.importers.csv_line import Line
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Found, Running
from dsd_tune.importers.judge import Dropped, acceptance, is_synthetic, judge, remarks_on
from dsd_tune.importers.reading import Reading
from dsd_tune.records.measurement import Arm
from dsd_tune.records.published import Fact, PublishedAcceptance, PublishedRow

_HEADER_FACTS = frozenset({"model", "method", "drafter", "gpu", "engine", "workload"})
_SUFFIX = re.compile(r"\bsuffix decoding\b", re.IGNORECASE)
_DEPTH = re.compile(r"\b(ISL|OSL) (\d+)")
_TIMED = frozenset({Quantity.TPOT, Quantity.STEP, Quantity.THROUGHPUT})
_ACCEPTED = frozenset({Quantity.LENGTH, Quantity.RATE, Quantity.POSITION, Quantity.DRAFTS})


def read_csv(path: Path, text: str, declared: Declared) -> Found:
    """Everything a CSV file holds.

    Raises:
        UsageError: no table, an axis that is no batch size, no usable time, an undeclared unit, or a bad value.
        ProfileMismatch: its rows come from unlike environments; names the key.
    """
    comments = [line.lstrip("# ").rstrip() for line in text.splitlines() if line.startswith("#")]
    names, lines = _table(path, text, declared)
    columns = [found for name in names if (found := column(name, declared))]
    rows = [Line(source, columns, cells) for source, cells in lines]
    remarks = _ignored(path, names, columns)
    has = {c.quantity for c in columns}
    if has >= {Quantity.OFFERED, Quantity.RUNNING} and not has & _TIMED:
        return Found(running=tuple(_running(rows)), columns=tuple(names))
    is_acceptance = not has & {Quantity.BATCH_SIZE, Quantity.OFFERED} and Quantity.K in has and has & _ACCEPTED
    if not is_acceptance:
        _refuse_other_axes(path, names, has)
    facts = _facts(path, comments, rows)
    stated = next((fact.value for fact in facts if fact.key == "method"), None)
    declared = replace(declared, method=declared.method or stated)
    if is_acceptance:
        return Found(acceptance=tuple(_acceptances(rows, declared)), facts=facts, columns=tuple(names), remarks=remarks)
    kept, judged = _judged(rows, declared)
    return Found(kept, facts=facts, columns=tuple(names), remarks=(*remarks, *judged))


def _table(path: Path, text: str, declared: Declared) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Column names, and the rows that were chosen, each with where it stands."""
    numbered = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    (_, names), *rows = [(n, _cells(path, n, line)) for n, line in numbered] or [(0, [])]
    if not rows or len(set(names)) != len(names):
        raise UsageError(f"{path} is no CSV table with distinct columns.", "Give a header line and one row a cell.")
    lines = []
    for number, row in rows:
        if len(row) != len(names):
            raise UsageError(f"{path}, line {number} has {len(row)} values, not {len(names)}.", "Correct the file.")
        lines.append((f"{path.name}, line {number}", dict(zip(names, row, strict=True))))
    wanted = [(name, value) for name, value in declared.where if name in names]
    return names, [line for line in lines if all(line[1][name] == value for name, value in wanted)]


def _cells(path: Path, number: int, line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise UsageError(f"{path}, line {number} is no CSV: {error}.", "Correct the file.") from error


def _ignored(path: Path, names: list[str], columns: list[Column]) -> tuple[str, ...]:
    known = {c.name for c in columns if c.quantity is not Quantity.ITL}
    unused = [name for name in names if name not in known and name]
    return (f"{path.name}: columns without a use here: {', '.join(unused)}",) if unused else ()


def _facts(path: Path, comments: Iterable[str], rows: Iterable[Line]) -> tuple[Fact, ...]:
    """Facts of the header and of the columns; what a column says is what its rows were chosen by."""
    columns = _agreed(path, (fact for row in rows for fact in row.facts()))
    header = _agreed(path, _header_facts(comments))
    named = {fact.key for fact in columns}
    return (*(fact for fact in header if fact.key not in named), *columns)


def _header_facts(comments: Iterable[str]) -> list[Fact]:
    facts = []
    for comment in comments:
        key, colon, value = comment.partition(": ")
        if colon and key in _HEADER_FACTS:
            facts.append(Fact(key, value))
        if key == "source" and _SUFFIX.search(value):
            facts.append(Fact("method", "suffix"))
        facts += [Fact(name.lower(), number) for name, number in _DEPTH.findall(comment)]
    return facts


def _agreed(path: Path, facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """One value a key."""
    found: dict[str, str] = {}
    for fact in facts:
        known = found.setdefault(fact.key, fact.value)
        if known != fact.value:
            raise ProfileMismatch(
                f"{path} holds rows that cannot be compared ({fact.key}: {known!r} against {fact.value!r}).",
                f"Import one of them: --where '{fact.key}={known}'.",
            )
    return tuple(Fact(key, value) for key, value in found.items())


def _running(rows: Iterable[Line]) -> Iterable[Running]:
    for row in rows:
        offered, running = row.count(Quantity.OFFERED), row.number(Quantity.RUNNING)
        if offered is None or running is None:
            continue
        try:
            yield Running(offered, round(running), row.source)
        except ValueError as error:
            raise UsageError(f"{error}.", "Correct the file.") from error


def _refuse_other_axes(path: Path, names: list[str], has: set[Quantity]) -> None:
    if not has & {Quantity.BATCH_SIZE, Quantity.OFFERED}:
        context = [name for name in names if name.lower() in CONTEXT]
        if context:
            raise UsageError(
                f"{path} has the axis {context[0]}, which is no batch size; a table by batch size cannot express it.",
                "Give a grid over batch_size, one for each length you serve.",
            )
        raise UsageError(
            f"{path} has no column batch_size.", "Give batch_size, k and tpot_ms, step_ms or output_tok_s."
        )
    if Quantity.K not in has:
        raise UsageError(f"{path} has no column k.", "Give the speculative tokens of each row, 0 for none.")
    if not has & _TIMED and Quantity.ITL in has:
        raise UsageError(
            f"{path} has only ITL, the time between outputs. With speculation an output holds several tokens, so ITL "
            "ranks K wrongly.",
            "Give tpot_ms, step_ms or output_tok_s.",
        )
    if not has & _TIMED:
        raise UsageError(f"{path} has no time of a cell.", "Give tpot_ms, step_ms or output_tok_s of the whole server.")


def _judged(rows: Iterable[Line], declared: Declared) -> tuple[tuple[PublishedRow, ...], tuple[str, ...]]:
    kept: list[PublishedRow] = []
    remarks: list[str] = []
    for row in rows:
        if (reading := _reading(row)) is None:
            remarks.append(f"left out: {row.source} ran under a table (K {row.text(Quantity.K)}), so it has no K")
            continue
        try:
            kept.append(judge(reading, declared))
        except Dropped as reason:
            remarks.append(f"left out: {reason}")
        else:
            remarks += remarks_on(reading, kept[-1], declared)
    return tuple(kept), tuple(remarks)


def _acceptances(rows: Iterable[Line], declared: Declared) -> Iterable[PublishedAcceptance]:
    for row in rows:
        reading = _reading(row)
        if reading is None or not reading.k or is_synthetic(reading, declared):
            continue
        if found := acceptance(reading, reading.k, declared):
            yield found


def _reading(row: Line) -> Reading | None:
    """None for rows that ran under a table."""
    k = row.text(Quantity.K)
    if k is None:
        raise UsageError(f"{row.source} has no K.", "Give the speculative tokens of each row, 0 for none.")
    if k == "-1" or not k.lstrip("-")[:1].isdigit():
        return None
    batch_size, running = row.count(Quantity.BATCH_SIZE), row.number(Quantity.RUNNING)
    stated = {fact.key: fact.value for fact in row.facts()}
    return Reading(
        source=row.source,
        offered=batch_size if batch_size is not None else row.count(Quantity.OFFERED),
        running=None if running is None else round(running),
        arm=_arm(row),
        k=row.count(Quantity.K),
        tpot_s=row.number(Quantity.TPOT),
        step_s=row.number(Quantity.STEP),
        output_tok_s=row.number(Quantity.THROUGHPUT),
        has_itl=row.number(Quantity.ITL) is not None,
        acceptance_length=row.number(Quantity.LENGTH),
        acceptance_rate=row.number(Quantity.RATE),
        rates=row.positions(),
        counters=_counters(row),
        method=stated.get("method", stated.get("drafter")),
        dataset=stated.get("dataset_name", stated.get("dataset")),
    )


def _arm(row: Line) -> Arm | None:
    text = row.text(Quantity.ARM)
    if text is not None and text not in set(Arm):
        raise UsageError(
            f"{row.source}: arm {text!r} is unknown.", f"Name one of {', '.join(Arm)}, or drop the column."
        )
    return Arm(text) if text else None


def _counters(row: Line) -> Counters | None:
    drafts, drafted = row.count(Quantity.DRAFTS), row.count(Quantity.DRAFT_TOKENS)
    accepted = row.count(Quantity.ACCEPTED)
    if drafts is None or drafted is None or accepted is None:
        return None
    try:
        return Counters(drafts, drafted, accepted, output_tokens=row.count(Quantity.OUTPUT_TOKENS))
    except ValueError as error:
        raise UsageError(f"{row.source}: {error}.", "Correct the file.") from error
