"""Validating on servers that obey a known law: order, resuming, and what is concluded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from builders import a_load, a_profile, a_validation_request

from dsd_tune.errors import EngineFailed, ProfileMismatch
from dsd_tune.model.closed_loop import Outcome
from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Verdict
from dsd_tune.records.table import Table
from dsd_tune.records.validation import ArmCommand, Load, ServedArm, Validation
from dsd_tune.validate import (
    advised_arm,
    conclude,
    exit_code,
    next_start,
    order,
    require_obedient,
    require_same_release,
    run,
)

OFF, FIXED, TABLE, TWIN = ServedArm.NO_SPEC, ServedArm.FIXED, ServedArm.TABLE, ServedArm.NO_SPEC_TWIN


class LawfulHost:
    """Servers whose TPOT is known; remembers which were started, and dies where told to."""

    def __init__(self, times: dict[ServedArm, float], dies_at: tuple[ServedArm, int] | None = None) -> None:
        self.times, self.dies_at = times, dies_at
        self.started: list[tuple[ServedArm, int]] = []
        self.alive = 0

    @contextmanager
    def serve(self, command: ArmCommand, start: int) -> Iterator["LawfulClient"]:
        """A server that counts as alive until its block ends."""
        self.started.append((command.arm, start))
        self.alive += 1
        try:
            yield LawfulClient(self, command.arm, start)
        finally:
            self.alive -= 1


class LawfulClient:
    """Clients of a lawful server."""

    def __init__(self, host: LawfulHost, arm: ServedArm, start: int) -> None:
        self.host, self.arm, self.start = host, arm, start

    def load(self, concurrency: int, start: int) -> Load:
        """TPOT is the arm's own, a little off in a way that depends on the start."""
        if (self.arm, start) == self.host.dies_at:
            raise EngineFailed("The server ended.", "See its log.")
        off = 1 + 0.001 * ((start + len(self.arm)) % 3)
        return a_load(arm=self.arm, start=start, concurrency=concurrency, tpot_s=self.host.times[self.arm] * off)


class Unseen:
    """A watcher that nobody reads."""

    def starting(self, arm: ServedArm, start: int, of: int) -> None:
        """Say nothing."""

    def loaded(self, load: Load) -> None:
        """Say nothing."""


def _outcome(tpot_s: float, mean_k: float = 0.0, length: float | None = None) -> Outcome:
    return Outcome(Interval(tpot_s, tpot_s, tpot_s), mean_k, length)


def _validated(times: dict[ServedArm, float], advised: ServedArm = TABLE) -> Validation:
    request = a_validation_request(commands=tuple(ArmCommand(arm, ("model",)) for arm in times))
    loads: list[Load] = []
    run(request, [], LawfulHost(times), loads.append, Unseen())
    return conclude(request, loads, advised, lambda arm, c: _outcome(times[arm]), 1.0)


def test_every_second_pass_goes_backwards() -> None:
    """A steady drift falls on all arms alike after an even number of passes; after three, one has no counterpart."""
    assert order((OFF, TABLE), 2) == [(OFF, 0), (TABLE, 0), (TABLE, 1), (OFF, 1)]
    arms = (OFF, FIXED, TABLE)

    def places(starts: int) -> list[int]:
        taken = [arm for arm, _ in order(arms, starts)]
        return [sum(place for place, arm in enumerate(taken) if arm is one) for one in arms]

    assert len(set(places(4))) == 1
    assert np.ptp(places(3)) == np.ptp(places(1)) == 2


def test_what_was_measured_is_not_measured_again() -> None:
    """A validation that died goes on with the loads that are missing, and ends with each exactly once."""
    times = {OFF: 0.04, TABLE: 0.03}
    request = a_validation_request(commands=tuple(ArmCommand(arm, ("model",)) for arm in times))
    loads: list[Load] = []
    dying = LawfulHost(times, dies_at=(TABLE, 1))
    with pytest.raises(EngineFailed):
        run(request, [], dying, loads.append, Unseen())
    assert dying.alive == 0
    before = len(loads)
    again = LawfulHost(times)
    run(request, loads, again, loads.append, Unseen())
    assert before
    assert again.started[0] == (TABLE, 1)
    taken = [(load.arm, load.start, load.concurrency) for load in loads]
    assert len(taken) == len(set(taken)) == 2 * request.starts * len(request.concurrency)


@pytest.mark.parametrize(
    ("done", "start", "left"),
    [
        ([], 0, [1, 4]),
        ([(0, 1), (0, 4)], 1, [1, 4]),
        ([(0, 1)], 0, [4]),
        ([(0, 1), (0, 4), (1, 1)], 1, [4]),
        ([(0, 1), (1, 1), (1, 4)], 0, [4]),
        ([(0, 1), (1, 4)], 1, [1]),
    ],
)
def test_an_interrupted_start_of_a_running_server_goes_on(
    done: list[tuple[int, int]], start: int, left: list[int]
) -> None:
    """The newest half start is made whole before another begins; those of other arms do not count."""
    loads = [a_load(arm=TABLE, start=s, concurrency=c) for s, c in done] + [a_load(arm=OFF, start=7)]
    assert next_start(TABLE, (1, 4), loads) == (start, left)


@pytest.mark.parametrize(
    ("times", "said", "code"),
    [
        ({OFF: 0.04, FIXED: 0.035, TABLE: 0.03}, Said.BETTER, 0),
        ({OFF: 0.04, FIXED: 0.04, TABLE: 0.04}, Said.SAME, 4),
        ({OFF: 0.04, FIXED: 0.041, TABLE: 0.05}, Said.WORSE, 4),
        ({OFF: 0.04, FIXED: 0.02, TABLE: 0.03}, Said.WORSE, 4),
    ],
    ids=["better", "same", "worse than nothing", "worse than a fixed K"],
)
def test_a_table_is_called_good_only_if_nothing_simpler_beats_it(
    times: dict[ServedArm, float], said: Said, code: int
) -> None:
    """Against no speculation and against the best fixed K."""
    found = _validated(times)
    assert (found.said, exit_code(found)) == (said, code)


@pytest.mark.parametrize(
    ("times", "outcome"),
    [
        ({OFF: 0.04, FIXED: 0.02, TABLE: 0.03}, "table is better than no speculation, and fixed K is better than both"),
        ({OFF: 0.04, FIXED: 0.03, TABLE: 0.05}, "table is worse than no speculation, and fixed K is better than both"),
        ({OFF: 0.04, FIXED: 0.04, TABLE: 0.05}, "table is worse than no speculation"),
        ({OFF: 0.04, FIXED: 0.041, TABLE: 0.05}, "table is worse than no speculation"),
        ({OFF: 0.04, FIXED: 0.035, TABLE: 0.03}, "table is better than no speculation"),
    ],
)
def test_what_refutes_a_table_is_named(times: dict[ServedArm, float], outcome: str) -> None:
    """A table that saves something is not called worse than nothing because a fixed K saves more."""
    assert _validated(times).outcome == outcome


def test_the_table_is_compared_with_the_fixed_k_too() -> None:
    """Over all concurrencies and at each; no speculation itself is not listed against it once more."""
    found = _validated({OFF: 0.04, FIXED: 0.02, TABLE: 0.03})
    rows = [(row.arm, row.concurrency, row.said) for row in found.against(FIXED)]
    assert rows == [(TABLE, None, Said.WORSE), (TABLE, 1, Said.WORSE), (TABLE, 4, Said.WORSE)]
    assert {row.arm for row in found.against(OFF)} == {FIXED, TABLE}


def test_a_record_without_that_comparison_names_the_fixed_k_all_the_same() -> None:
    """Older records hold what was said of the table, and how both stood to no speculation."""
    found = _validated({OFF: 0.04, FIXED: 0.02, TABLE: 0.03})
    old = replace(found, comparisons=found.against(OFF))
    assert old.outcome == found.outcome


def test_without_a_load_of_no_speculation_nothing_is_said() -> None:
    """Of running servers the fixed K and the table may be loaded first, and `said` is against no speculation."""
    loads = [a_load(arm=arm, start=s, tpot_s=t) for s in range(3) for arm, t in ((FIXED, 0.02), (TABLE, 0.03))]
    found = conclude(a_validation_request(), loads, TABLE, lambda *_: None, 1.0)
    assert (found.said, exit_code(found)) == (Said.UNCLEAR, 5)
    assert [row.said for row in found.against(FIXED) if row.overall] == [Said.WORSE]


@pytest.mark.parametrize(
    ("verdict", "table", "advised"),
    [
        (Verdict.TABLE, [2, 0], TABLE),
        (Verdict.FIXED, [2, 0], FIXED),
        (Verdict.OFF, [2, 0], OFF),
        (Verdict.UNCLEAR, [2, 0], TABLE),
        (Verdict.UNCLEAR, [2, 2], FIXED),
        (Verdict.UNCLEAR, None, FIXED),
    ],
)
def test_what_is_on_trial_has_a_server(verdict: Verdict, table: list[int] | None, advised: ServedArm) -> None:
    """Where the sweep cannot tell that is the table; one K throughout, or none, is no arm of its own."""
    decision = a_profile().decision
    found = Table.from_dense(table) if table else None
    assert advised_arm(replace(decision, verdict=verdict, table=found, max_num_seqs=2)) is advised


def test_speculation_advised_off_is_refuted_by_an_arm_that_wins() -> None:
    """A server that is faster with a fixed K contradicts the advice; a slower one confirms that there is no gain."""
    refuted, confirmed = (
        _validated({OFF: 0.04, FIXED: 0.03}, OFF),
        _validated({OFF: 0.04, FIXED: 0.05}, OFF),
    )
    assert (refuted.said, exit_code(refuted)) == (Said.WORSE, 5)
    assert (confirmed.said, exit_code(confirmed)) == (Said.SAME, 4)


def test_speculation_advised_off_is_not_confirmed_by_loads_that_cannot_tell() -> None:
    """After a single start nothing is known, and nothing is claimed."""
    loads = [a_load(arm=arm, tpot_s=tpot_s) for arm, tpot_s in ((OFF, 0.04), (FIXED, 0.05))]
    found = conclude(a_validation_request(), loads, OFF, lambda *_: None, 1.0)
    assert (found.said, exit_code(found)) == (Said.UNCLEAR, 5)
    assert found.outcome == "no speculation is not known to be beaten"


def test_a_self_check_fails_where_equals_look_unlike() -> None:
    """Exit code 1 if twins differ, 0 if they do not."""
    assert exit_code(_validated({OFF: 0.04, TWIN: 0.04})) == 0
    assert exit_code(_validated({OFF: 0.04, TWIN: 0.05})) == 1


def test_a_prediction_that_is_off_is_said() -> None:
    """A server half as fast as the profile says is another machine, traffic or drafter."""
    request = a_validation_request()
    loads = [a_load(arm=OFF, start=s, concurrency=c, tpot_s=0.04) for s in range(3) for c in request.concurrency]
    off = conclude(request, loads, OFF, lambda *_: _outcome(0.02), 1.0)
    assert any("2 of 2 predictions are more than 10% off (-50%)" in r for r in off.remarks)
    near = conclude(request, loads, OFF, lambda *_: _outcome(0.041), 1.0)
    assert not any("predictions" in remark for remark in near.remarks)


def test_what_a_slower_machine_leaves_of_an_error_is_said() -> None:
    """All arms half as fast as foretold, and one a further 5 %: that is what the advice has to answer for."""
    loads = [a_load(arm=arm, start=s, tpot_s=t) for s in range(3) for arm, t in ((OFF, 0.08), (TABLE, 0.063))]
    expected = {OFF: _outcome(0.04), TABLE: _outcome(0.03)}
    found = conclude(a_validation_request(), loads, TABLE, lambda arm, _: expected[arm], 1.0)
    assert any("against no speculation they are off by -5% to -5%" in remark for remark in found.remarks)


def test_failed_requests_and_few_starts_are_said() -> None:
    """What makes a comparison weak stands beside it."""
    request = a_validation_request()
    loads = [a_load(arm=OFF, start=0, concurrency=c, failed=1, output_lens=(128,) * 7) for c in request.concurrency]
    remarks = conclude(request, loads, OFF, lambda *_: None, 1.0).remarks
    assert any("failed" in r for r in remarks)
    assert any("fewer than 3" in r for r in remarks)


@pytest.mark.parametrize(("last_at_h", "said"), [(3, False), (6, True)])
def test_a_pause_within_a_pass_is_said(last_at_h: float, *, said: bool) -> None:
    """Arms on either side of three hours are not side by side; three hours between two passes are no matter."""
    turns = [(OFF, 0, 0), (TABLE, 0, 0.1), (TABLE, 1, 3), (OFF, 1, last_at_h + 0.1)]
    loads = [a_load(arm=arm, start=start, taken_at_s=3600 * at_h) for arm, start, at_h in turns]
    remarks = conclude(a_validation_request(), loads, TABLE, lambda *_: None, 1.0).remarks
    assert any("pass 2 paused for 3 h between two loads" in remark for remark in remarks) == said


def test_loads_of_two_releases_are_not_mixed() -> None:
    """A server of another vLLM than those before is refused by name; one that does not tell is believed."""
    known = [a_load(vllm_version="0.31.0"), a_load(vllm_version=None)]
    for fine in ("0.31.0", None):
        require_same_release(a_load(vllm_version=fine), known)
    with pytest.raises(ProfileMismatch, match=r"is vLLM 0\.32\.0, and loads so far are of 0\.31\.0"):
        require_same_release(a_load(vllm_version="0.32.0"), known)


def _drafting(arm: ServedArm, k: float, *, accepted: int = 0) -> Load:
    """Eight requests of 129 tokens, the first of each from its prefill, with K drafts in each step that is left."""
    steps = 8 * 128 - accepted
    return a_load(
        arm=arm, concurrency=4, output_lens=(129,) * 8, draft_tokens=round(k * steps), accepted_tokens=accepted
    )


@pytest.mark.parametrize(
    ("arm", "k", "expected", "said"),
    [
        (TABLE, 3, 1.1, "drafted 3.0 tokens for a request in a step, and the profile says 1.1: it ignores the table"),
        (TABLE, 1, 0.1, "it ignores the table, or runs another"),
        (TABLE, 1, 2.9, "it ignores the table, or runs another"),
        (TABLE, 0, 2, "it ignores the table, or runs another"),
        (OFF, 2, 0, "it speculates"),
        (TWIN, 2, 0, "it speculates"),
        (FIXED, 2, 3, "it runs something else"),
    ],
)
def test_a_server_that_does_something_else_is_refused(arm: ServedArm, k: float, expected: float, said: str) -> None:
    """However well its drafts are accepted, what it drafted tells, and the message names the arm."""
    for accepted in (0, 500):
        with pytest.raises(ProfileMismatch, match=said) as found:
            require_obedient(_drafting(arm, k, accepted=accepted), _outcome(0.04, expected))
        assert arm.words in str(found.value)


def test_a_server_that_obeys_or_does_not_tell_is_not_refused() -> None:
    """Ramps may move the mean a little; nothing is said without counts, nor where nothing is expected."""
    require_obedient(_drafting(TABLE, 1.2), _outcome(0.04, 1.0))
    require_obedient(a_load(arm=TABLE, draft_tokens=None, accepted_tokens=None), _outcome(0.04, 3.0))
    require_obedient(_drafting(TABLE, 3), None)


def test_nothing_is_said_of_a_server_whose_requests_failed() -> None:
    """It drafted for texts that never came, so that drafts and tokens do not belong together."""
    failing = replace(_drafting(TABLE, 3), requests=9, failed=1)
    require_obedient(failing, _outcome(0.04, 1.0))
    with pytest.raises(ProfileMismatch):
        require_obedient(replace(failing, failed=0), _outcome(0.04, 1.0))


def test_a_method_that_takes_k_for_a_cap_may_draft_less() -> None:
    """N-gram matching finds no drafts for some steps; more than K it never proposes."""
    require_obedient(_drafting(TABLE, 0.4), _outcome(0.04, 3.0), may_draft_less=True)
    with pytest.raises(ProfileMismatch):
        require_obedient(_drafting(TABLE, 3), _outcome(0.04, 1.0), may_draft_less=True)


def test_a_drafter_that_is_accepted_unlike_in_the_sweep_is_named() -> None:
    """Random weights give a token a step; that is no matter of the machine, and 5 % are none of anything."""
    request = a_validation_request()

    def remarks(length: float) -> str:
        loads = [a_load(arm=FIXED, start=s, acceptance_length=length) for s in range(3)]
        return " ".join(conclude(request, loads, FIXED, lambda *_: _outcome(0.04, 2, 1.9), 1.0).remarks)

    assert "yields 1.02 tokens on servers and 1.90 in the sweep (fixed K, 1 at a time)" in remarks(1.02)
    assert "another drafter, or one whose weights were not loaded" in remarks(1.02)
    assert "yields" not in remarks(1.81)


def test_what_else_is_to_be_said_comes_along() -> None:
    """Remarks of whoever asks stand first."""
    loads = [a_load(arm=OFF, start=s) for s in range(3)]
    found = conclude(a_validation_request(), loads, OFF, lambda *_: None, 1.0, ["a word"])
    assert found.remarks[0] == "a word"
