"""From a profile to a report's document: the answer, what to paste, pictures, tables, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime

from dsd_tune.emit.decision import advised_table
from dsd_tune.emit.formats import Format, emit
from dsd_tune.errors import UsageError
from dsd_tune.records.environment import Environment, GraphUse
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Block, Cell, Failure
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.records.validation import Validation
from dsd_tune.report.conditions import rows
from dsd_tune.report.document import Code, Document, Grid, Pairs, Part, Points, Section
from dsd_tune.report.grid import columns_of, findings, grounds, heading, headline
from dsd_tune.report.pictures import pictures, undrawn
from dsd_tune.report.validation import HEAD, compared_with, comparison_rows


def document(profile: Profile, samples: Sequence[Block | Failure], said: Sequence[str]) -> Document:
    """Everything there is to say; `said` are remarks on the text to paste, `samples` may be empty."""
    warnings = (*map(str, profile.warnings), *profile.decision.remarks)
    caution = Section(_counted(len(warnings)), (Points(warnings),)) if warnings else None
    return Document(
        title=f"Speculative tokens for {_subject(profile)}",
        answer=headline(profile),
        reason=f"{profile.decision.reason}.",
        caution=caution,
        sections=(*_answers(profile, samples, said), *([caution] if caution else []), *_origins(profile)),
        origin=f"Fitted {_date(profile)} by dsd-tune {profile.dsd_tune_version}.",
    )


def _answers(profile: Profile, samples: Sequence[Block | Failure], said: Sequence[str]) -> Iterator[Section]:
    yield Section("What to paste", tuple(_to_paste(profile, said)))
    yield Section("The same as a file for vLLM's --config", (_config_file(profile, said),), folded=True)
    yield Section("Why", (Pairs(tuple(ground for ground in grounds(profile) if ground[0] != "Why")),))
    missing = tuple(undrawn(profile, samples))
    yield Section("Pictures", (*pictures(profile, samples), *([Points(missing)] if missing else [])))
    second = "gain over no speculation in percent" if profile.acceptance_known else "acceptance length that would pay"
    yield Section(f"{'TPOT' if profile.acceptance_known else 'Step time'} in ms, and {second}", (_grid(profile),))
    yield Section("What was learnt", (Pairs(tuple(findings(profile))),))
    if profile.validation:
        yield Section("What servers showed", tuple(_served(profile.validation)))
    if profile.conditions:
        yield Section("Each condition by itself", (Pairs(tuple(rows(profile))),))


def _origins(profile: Profile) -> Iterator[Section]:
    yield Section("What was measured", (Pairs(tuple(_fingerprint(profile))),))
    yield Section("How it was measured", (Pairs(tuple(_method(profile))),))
    yield Section("Every cell", (_cells(profile),), folded=True)


def _counted(warnings: int) -> str:
    return f"{warnings} warnings and notes" if warnings > 1 else "A warning"


def _subject(profile: Profile) -> str:
    if profile.environment:
        return f"{profile.environment.model} with {profile.environment.method}"
    named = [value for key in ("model", "drafter") if (value := profile.fact(key))]
    return " with ".join(named) or "an import"


def _date(profile: Profile) -> str:
    return datetime.fromtimestamp(profile.created_at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _config_file(profile: Profile, said: Sequence[str]) -> Part:
    """The file, or why there is none."""
    try:
        return Code(emit(profile, Format.YAML, *said).text)
    except UsageError as error:
        return Points((error.what,))


def _to_paste(profile: Profile, said: Sequence[str]) -> Iterator[Part]:
    yield Code(emit(profile, Format.CLI).text)
    unadvised = advised_table(profile) is None
    remarks = (*(["This line leaves speculation out, as the verdict does"] if unadvised else []), *said)
    if remarks:
        yield Points(remarks)


def _served(validation: Validation) -> Iterator[Part]:
    yield Points((f"{validation.outcome[:1].upper()}{validation.outcome[1:]}", *validation.remarks))
    for against in compared_with(validation):
        head = (heading.replace("\n", " ").replace("arm", f"arm against {against.words}") for heading in HEAD)
        yield Grid(tuple(head), tuple(comparison_rows(validation, against)))


def _grid(profile: Profile) -> Grid:
    """The grid of the terminal, with intervals: B, then a column for each arm and K."""
    cells = {estimate.cell: estimate for estimate in profile.cells}
    columns, entry = columns_of(cells), _entry if profile.acceptance_known else _cost
    lines = []
    for size in sorted({cell.batch_size for cell in cells}):
        row = [cells.get(Cell(arm, size, k)) for arm, k in columns]
        best = min(estimate.tpot_s.value for estimate in row if estimate)
        lines.append((str(size), *(entry(estimate, best) for estimate in row)))
    return Grid(("B", *(heading(arm, k) for arm, k in columns)), tuple(lines))


def _entry(estimate: CellEstimate | None, best: float) -> str:
    if estimate is None:
        return "not measured"
    star = "* " if estimate.tpot_s.value == best else ""
    gain = estimate.gain
    if estimate.cell.arm is Arm.NO_SPEC or gain is None:
        return f"{star}{estimate.tpot_s.value * 1e3:.1f}"
    return f"{star}{estimate.tpot_s.value * 1e3:.1f} ({gain.value * 100:+.0f} ±{(gain.high - gain.low) * 50:.0f})"


def _cost(estimate: CellEstimate | None, best: float) -> str:
    """Where acceptance is not known: step time, and from which acceptance length the cell pays."""
    if estimate is None or estimate.break_even is None:
        return _entry(estimate, best)
    tokens = estimate.break_even
    return f"{estimate.tpot_s.value * 1e3:.1f} ({tokens.value:.2f} ±{(tokens.high - tokens.low) / 2:.2f})"


def _fingerprint(profile: Profile) -> Iterator[tuple[str, str]]:
    """All that can change the answer; of an import, what its files say."""
    if profile.environment is None:
        yield "origin", "measured by others, and imported: published numbers, not blocks of ours"
        yield from ((fact.key, fact.value) for fact in profile.facts)
        return
    for field in fields(Environment):
        yield field.name.replace("_", " "), _value(getattr(profile.environment, field.name))


def _method(profile: Profile) -> Iterator[tuple[str, str]]:
    """How many of what, and what noise there was."""
    request = profile.request
    if request:
        yield "arms", f"no speculation and a table's engine with K switched live, in turns{_fixed_too(profile)}"
        yield "engine starts", f"{request.starts} an arm"
        yield (
            "blocks",
            f"{request.rounds} for each cell and start, of {request.steps} steps after {request.settle} dropped ones",
        )
        yield "measured under", "; ".join(map(str, request.conditions))
        yield "seed", str(request.seed)
        yield "speculative config", request.speculative_config
        yield "engine flags", _value(request.engine_flags)
        yield (
            "kept share",
            f"at least {min(cell.kept_share for cell in profile.cells):.0%} of a cell's steps met the rules",
        )
        yield (
            "intervals",
            "95 %; units are the engine start between arms, the block within one, the prompt for acceptance",
        )
    else:
        yield "intervals", "95 %, from deviations that had to be assumed, since single published numbers carry none"


def _fixed_too(profile: Profile) -> str:
    return "; then the best fixed K" if any(cell.cell.arm is Arm.STATIC for cell in profile.cells) else ""


def _cells(profile: Profile) -> Grid:
    head = ("cell", "step time (ms)", "TPOT (ms)", "gain (%)", "starts", "blocks", "kept")
    return Grid(head, tuple(_cell(estimate) for estimate in profile.cells))


def _cell(estimate: CellEstimate) -> tuple[str, ...]:
    numbers = (_numbers(estimate.step_s, 1e3), _numbers(estimate.tpot_s, 1e3), _numbers(estimate.gain, 100))
    return (str(estimate.cell), *numbers, str(estimate.starts), str(estimate.blocks), f"{estimate.kept_share:.0%}")


def _numbers(interval: Interval | None, scale: float) -> str:
    if interval is None:
        return "not known"
    return f"{interval.value * scale:.1f} [{interval.low * scale:.1f}, {interval.high * scale:.1f}]"


def _value(value: object) -> str:
    if isinstance(value, GraphUse):
        return f"{value.mode}; {len(value.capture_sizes)} sizes{_ends(value.capture_sizes)}"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _ends(sizes: Sequence[int]) -> str:
    return f" from {sizes[0]} to {sizes[-1]} tokens" if sizes else ""
