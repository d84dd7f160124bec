"""What is left of an advice once servers were asked."""

from dataclasses import replace

import pytest
from builders import a_decided_profile, a_validation

from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.proven import proven
from dsd_tune.records.validation import ServedArm

OFF, FIXED, TABLE = ServedArm.NO_SPEC, ServedArm.FIXED, ServedArm.TABLE


def _validated(advice: Verdict, advised: ServedArm, said: Said, alone: dict[ServedArm, Said]) -> Profile:
    """A profile with a record."""
    return replace(a_decided_profile(advice), validation=a_validation(advised, said, alone))


@pytest.mark.parametrize(
    ("said", "table", "fixed", "left"),
    [
        (Said.BETTER, Said.BETTER, Said.BETTER, Verdict.TABLE),
        (Said.UNCLEAR, Said.UNCLEAR, Said.BETTER, Verdict.TABLE),
        (Said.WORSE, Said.BETTER, Said.BETTER, Verdict.FIXED),
        (Said.WORSE, Said.WORSE, Said.BETTER, Verdict.FIXED),
        (Said.WORSE, Said.UNCLEAR, Said.UNCLEAR, Verdict.UNCLEAR),
        (Said.WORSE, Said.UNCLEAR, Said.SAME, Verdict.OFF),
        (Said.WORSE, Said.WORSE, Said.UNCLEAR, Verdict.OFF),
        (Said.SAME, Said.SAME, Said.SAME, Verdict.OFF),
    ],
)
def test_of_a_table_is_left_what_servers_did_not_refute(said: Said, table: Said, fixed: Said, left: Verdict) -> None:
    """Where the fixed K beat it, that is advised if it is better than no speculation, too."""
    profile = _validated(Verdict.TABLE, TABLE, said, {TABLE: table, FIXED: fixed})
    found = proven(profile)
    assert found.decision.verdict is left
    assert (found is profile) == (left is Verdict.TABLE)


def test_the_reason_says_what_the_fixed_k_beat() -> None:
    """Whoever reads the new verdict learns that servers made it."""
    found = proven(_validated(Verdict.TABLE, TABLE, Said.WORSE, {TABLE: Said.BETTER, FIXED: Said.BETTER}))
    assert found.decision.reason == "on servers, table is better than no speculation, and fixed K is better than both"


@pytest.mark.parametrize(("said", "left"), [(Said.BETTER, Verdict.FIXED), (Said.WORSE, Verdict.OFF)])
def test_a_fixed_k_stands_or_falls_by_itself(said: Said, left: Verdict) -> None:
    """There is nothing simpler that could take its place."""
    assert proven(_validated(Verdict.FIXED, FIXED, said, {FIXED: said})).decision.verdict is left


@pytest.mark.parametrize(
    ("advised", "said", "left"),
    [
        (TABLE, Said.BETTER, Verdict.TABLE),
        (FIXED, Said.BETTER, Verdict.FIXED),
        (TABLE, Said.SAME, Verdict.OFF),
        (TABLE, Said.UNCLEAR, Verdict.UNCLEAR),
    ],
)
def test_servers_decide_where_the_sweep_cannot(advised: ServedArm, said: Said, left: Verdict) -> None:
    """The arm that was on trial is advised once it has won, so that `emit-config` says what `validate` said."""
    found = proven(_validated(Verdict.UNCLEAR, advised, said, {advised: said}))
    assert found.decision.verdict is left


@pytest.mark.parametrize("said", [Said.SAME, Said.WORSE])
def test_speculation_that_was_advised_off_stays_off(said: Said) -> None:
    """Servers that contradict the sweep are no reason to deploy what it did not advise."""
    profile = _validated(Verdict.OFF, OFF, said, {FIXED: Said.BETTER})
    assert proven(profile) is profile
