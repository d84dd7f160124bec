"""Which of two records a profile keeps."""

from typing import Any

import pytest
from builders import a_validation_request

from dsd_tune.records.comparison import Said
from dsd_tune.records.validation import ServedArm, Validation


def _record(said: Said, loads: int, advised: ServedArm = ServedArm.TABLE, **asked: Any) -> Validation:
    return Validation(a_validation_request(**asked), advised, (), (), said, (), loads, 1.0)


@pytest.mark.parametrize(
    ("newer", "kept"),
    [
        (_record(Said.UNCLEAR, 4, starts=1, concurrency=(4,), requests=(8,)), True),
        (_record(Said.UNCLEAR, 40, commands=()), True),
        (_record(Said.UNCLEAR, 12), True),
        (_record(Said.UNCLEAR, 24, starts=6), False),
        (_record(Said.BETTER, 4, starts=1), False),
        (_record(Said.UNCLEAR, 12, ServedArm.NO_SPEC), False),
    ],
    ids=["smaller", "running servers", "elsewhere", "more starts of the same", "decided", "other advice"],
)
def test_what_cannot_tell_takes_nothing_back(newer: Validation, kept: bool) -> None:
    """A refuted advice stays refuted until other loads tell, or the same servers are started more often."""
    assert _record(Said.WORSE, 12).outlasts(newer) is kept


def test_what_could_not_tell_itself_is_replaced() -> None:
    """There is nothing to keep."""
    assert not _record(Said.UNCLEAR, 12).outlasts(_record(Said.UNCLEAR, 4, starts=1))
