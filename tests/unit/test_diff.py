from dataclasses import replace
from typing import Any

import pytest
from builders import a_decided_profile, a_profile, an_environment

from dsd_tune.diff import compare
from dsd_tune.errors import UsageError
from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, PositionAcceptance, Profile, Verdict
from dsd_tune.records.published import Fact


def _about(value: float, share: float = 0.01) -> Interval:
    return Interval(value, value * (1 - share), value * (1 + share))


def _estimate(cell: Cell, step_s: float, share: float = 0.01, no_spec_s: float = 0.02) -> CellEstimate:
    tpot_s = step_s / {0: 1.0, 2: 2.0}[cell.k]
    left = _about(tpot_s / no_spec_s)
    gain = Interval(1 - left.value, 1 - left.high, 1 - left.low)
    return CellEstimate(cell, _about(step_s, share), _about(tpot_s, share), gain, 3, 12, 1.0)


def _profile(verdict: Verdict = Verdict.TABLE, slower: float = 1.0, share: float = 0.01, **changed: Any) -> Profile:
    """No speculation at 20 ms and K=2 at 30 ms, at batch sizes 1, 4 and 16, all `slower`; AL 2 at K=2."""
    arms = ((Arm.NO_SPEC, 0, 0.02), (Arm.DSD, 0, 0.021), (Arm.DSD, 2, 0.03))
    cells = [_estimate(Cell(arm, b, k), s * slower, share, 0.02 * slower) for b in (1, 4, 16) for arm, k, s in arms]
    rates = (PositionAcceptance(1, _about(0.6)), PositionAcceptance(2, _about(0.4)))
    return replace(a_decided_profile(verdict), **{"cells": tuple(cells), "acceptance": rates} | changed)


def test_a_profile_is_the_same_as_itself() -> None:
    """Nothing changed: the same environment, every cell and position the same, exit code 0."""
    found = compare(_profile(), _profile())
    assert found.keys == ()
    assert {c.change.said for c in (*found.cells, *found.acceptance)} == {Said.SAME}
    assert (found.said, found.said.exit_code) == (Said.SAME, 0)
    assert found.advice_before == found.advice_after


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize(("slower", "said", "code"), [(1.2, Said.WORSE, 4), (0.8, Said.BETTER, 0)])
def test_a_slower_engine_is_worse_whatever_was_advised(verdict: Verdict, slower: float, said: Said, code: int) -> None:
    """TPOT of a table, a fixed K and no speculation all follow the engine."""
    found = compare(_profile(verdict), _profile(verdict, slower))
    assert found.tpot is not None
    assert found.tpot.ratio.value == pytest.approx(slower)
    assert (found.said, found.said.exit_code) == (said, code)


def test_one_cell_that_got_slower_is_named() -> None:
    """The mean may hide it, the verdict does not: the cell that got slower is in the reason."""
    before, after = _profile(Verdict.OFF), _profile(Verdict.OFF)
    slow = tuple(_estimate(e.cell, 0.05) if e.cell == Cell(Arm.DSD, 16, 2) else e for e in after.cells)
    found = compare(before, replace(after, cells=slow))
    assert found.said is Said.WORSE
    assert "dsd B=16 K=2" in found.reason


def test_a_drafter_that_lost_its_acceptance_is_worse() -> None:
    """A position that is never accepted any more is the worst there can be, although its ratio has no logarithm."""
    nothing = (PositionAcceptance(1, Interval(0.0, 0.0, 0.001)),)
    found = compare(_profile(), _profile(acceptance=nothing))
    assert [(a.at, a.change.said) for a in found.acceptance] == [(1, Said.WORSE)]
    assert found.said is Said.WORSE


def test_wide_intervals_cannot_tell() -> None:
    """Without significance and without ruling a loss out there is no verdict, and it says what to do."""
    found = compare(_profile(), _profile(slower=1.02, share=0.2))
    assert (found.said, found.said.exit_code) == (Said.UNCLEAR, 5)
    assert "more starts" in found.reason


def test_the_machine_is_named_first() -> None:
    """Another GPU is no error, and stands before whatever else differs."""
    other = an_environment(device_name="other", vllm_version="0.33.0", dtype="float16")
    found = compare(_profile(environment=an_environment()), _profile(environment=other))
    assert [(key.key, key.machine) for key in found.keys] == [
        ("device_name", True), ("dtype", False), ("vllm_version", False),
    ]  # fmt: skip


def test_longer_sequences_are_named() -> None:
    """How long sequences were is part of the request, and changes step times."""
    before = _profile()
    assert before.request is not None
    found = compare(before, replace(before, request=replace(before.request, contexts=(4096,))))
    assert [(key.key, key.after) for key in found.keys] == [("contexts", "(4096,)")]


def test_spelling_of_a_path_is_no_change() -> None:
    """Digests tell models apart, not the names of their folders."""
    before = a_decided_profile(model="here")
    assert compare(before, a_decided_profile(model="there")).keys == ()


def test_the_ratio_to_no_speculation_is_free_of_the_machine() -> None:
    """Where everything is slower by the same, what speculation is worth has not changed."""
    found = compare(_profile(), _profile(slower=1.3))
    assert found.relative is not None
    assert found.relative.said is Said.SAME
    assert found.no_spec is not None
    assert found.no_spec.said is Said.WORSE


def test_cells_of_one_profile_only_are_listed() -> None:
    """What cannot be compared is said, not dropped."""
    before = _profile()
    found = compare(before, replace(before, cells=before.cells[:-1]))
    assert found.missing == (Cell(Arm.DSD, 16, 2),)


def test_nothing_in_common_is_refused() -> None:
    """Sweeps of other batch sizes cannot be compared."""
    other = replace(a_profile().cells[0], cell=Cell(Arm.DSD, 2, 2))
    with pytest.raises(UsageError, match="no cell in common"):
        compare(a_profile(), a_profile(cells=(other,)))


def test_imports_are_compared_by_what_their_files_say() -> None:
    """An import has no environment; the facts that differ are named in its place."""
    before = _profile(environment=None, request=None, facts=(Fact("gpu", "A100"), Fact("method", "eagle")))
    after = replace(before, facts=(Fact("gpu", "H100"),))
    keys = [(key.key, key.before, key.after) for key in compare(before, after).keys]
    assert keys == [("gpu", "A100", "H100"), ("method", "eagle", "not known")]


def test_advice_that_was_not_measured_again_cannot_be_told() -> None:
    """Where no cell of the advice is in both, nothing is said of its TPOT."""
    before = _profile()
    found = compare(before, replace(before, cells=tuple(e for e in before.cells if e.cell.arm is Arm.NO_SPEC)))
    assert found.tpot is None
    assert found.said is Said.UNCLEAR
