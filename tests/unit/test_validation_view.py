"""A validation as a person reads it."""

from io import StringIO
from itertools import takewhile

from builders import a_load, a_validation_request
from rich.console import Console

from dsd_tune.model.closed_loop import Outcome
from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ServedArm
from dsd_tune.report.validation import Progress, render
from dsd_tune.validate import conclude


def _printed(starts: int) -> str:
    times = {ServedArm.NO_SPEC: 0.24, ServedArm.FIXED: 0.21, ServedArm.TABLE: 0.18, ServedArm.ADAPTIVE: 0.19}
    loads = [
        a_load(arm=arm, start=start, concurrency=c, tpot_s=time * luck, duration_s=100 * time * luck)
        for start in range(starts)
        for arm, time in times.items()
        for luck in [1 + 0.06 * ((start * 3 + len(arm)) % 4)]
        for c in (1, 128)
    ]
    request = a_validation_request(concurrency=(1, 128), requests=(8, 256))
    found = conclude(
        request, loads, ServedArm.TABLE, lambda arm, _: Outcome(Interval(times[arm], times[arm], 0.3), 0, None), 1.0
    )
    text = StringIO()
    Console(file=text, width=80).print(render(found))
    return text.getvalue()


def test_everything_fits_80_columns_on_one_line_each() -> None:
    """Rows of the longest names and of wide numbers, none of them wrapped."""
    lines = _printed(3).splitlines()
    assert all(len(line) <= 80 for line in lines)
    tables = [list(takewhile(str.strip, lines[place + 1 :])) for place, line in enumerate(lines) if "───" in line]
    assert [len(rows) for rows in tables] == [8, 9, 6]
    assert all(row.strip().startswith(("all ", "1 ", "128 ")) for rows in tables for row in rows)
    assert [line.strip() for line in lines if "Against" in line] == ["Against no speculation", "Against fixed K"]
    assert "Validation: table is better than no speculation" in "\n".join(lines)


def test_an_interval_that_says_nothing_is_left_out() -> None:
    """After one start there is a value, a dash for what could be seen, and no claim."""
    text = _printed(1)
    assert "cannot tell" in text
    assert "Validation: table is not told apart from no speculation" in text
    assert "±" not in text.split("Against")[1].replace("± ", "")


def test_progress_is_one_line_a_load() -> None:
    """With how many there are in all."""
    text = StringIO()
    progress = Progress(Console(file=text, width=80), a_validation_request())
    progress.starting(ServedArm.NO_SPEC, 0, 3)
    progress.loaded(a_load())
    assert text.getvalue().splitlines() == [
        "0 of 12 loads: starting a server: no speculation, start 1 of 3",
        "1 of 12 loads: no speculation, 1 at a time: TPOT 40.0 ms, 51 tokens/s",
    ]
