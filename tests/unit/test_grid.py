from dataclasses import replace
from io import StringIO

import pytest
from builders import a_profile, a_warning
from rich.console import Console

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import (
    AcceptanceLength,
    Boundary,
    CellEstimate,
    Comparison,
    CriticalSize,
    Crossover,
    Limit,
    PositionAcceptance,
    Profile,
    Rival,
    Source,
    Stretch,
    Tax,
    Variance,
    Verdict,
)
from dsd_tune.records.table import Table
from dsd_tune.records.warning import QualityWarning
from dsd_tune.report.grid import render

WIDTH = 80

TPOT_MS = {
    (Arm.NO_SPEC, 0): (38.64, 40.1, 51.32),
    (Arm.DSD, 0): (38.2, 41.6, 54.9),
    (Arm.DSD, 1): (26.4, 29.55, 51.04),
    (Arm.DSD, 2): (24.5, 30.25, None),
}


def _interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half)


def _compared(value: float, half: float) -> Comparison:
    return Comparison(value, value - half, value + half, 1.43 * half)


def _cells() -> tuple[CellEstimate, ...]:
    base = TPOT_MS[Arm.NO_SPEC, 0]
    return tuple(
        CellEstimate(
            Cell(arm, size, k),
            _interval(ms / 1e3, 0),
            _interval(ms / 1e3, ms / 2e4),
            _interval(1 - ms / off, 0.03 * (k + 1) if arm is Arm.DSD else 0),
            3,
            6,
            1.0,
            {0: 0.012, 1: 0.06, 2: 0.21}[k],
        )
        for (arm, k), row in TPOT_MS.items()
        for size, ms, off in zip((1, 4, 16), row, base, strict=True)
        if ms and off
    )


def _warning(said: str) -> QualityWarning:
    return a_warning(said=said, hint="See the log.")


def _profile() -> Profile:
    """Every kind of line once, in round numbers."""
    profile = a_profile()
    decision = replace(
        profile.decision,
        table=Table.from_dense([2] * 2 + [1] * 10 + [0] * 4),
        table_gain=_compared(0.25, 0.05),
        fixed_k=1,
        fixed_gain=_compared(0.24, 0.05),
        fixed_worst_loss=0.051,
        boundaries=(
            Boundary(2, 2, 6, 1, 4, 2, 1, _interval(0.023, 0.031)),
            Boundary(12, 12, 12, 12, 13, 1, 0, None),
        ),
        rivals=(Rival(0, 8, 12), Rival(1, 2, 2), Rival(2, 3, 6), Rival(2, 9, 9)),
        losing=(Stretch(13, 16, _interval(0.07, 0.01)),),
        weights="every doubling of the batch size counts alike",
        reason="the table saves 25.0% [20.0%, 30.0%] of TPOT over no speculation",
    )
    return replace(
        profile,
        cells=_cells(),
        acceptance=(PositionAcceptance(1, _interval(0.6, 0.03)), PositionAcceptance(2, _interval(0.3, 0.02))),
        acceptance_lengths=(
            AcceptanceLength(0, _interval(1, 0)),
            AcceptanceLength(1, _interval(1.6, 0.03)),
            AcceptanceLength(2, _interval(1.9, 0.05)),
        ),
        k0_tax=(Tax(1, _compared(-0.011, 0.02)), Tax(4, _compared(0.037, 0.02)), Tax(16, _compared(0.07, 0.02))),
        crossovers=(
            Crossover(1, True, None),
            Crossover(2, True, Interval(14.2, 11, 20)),
            Crossover(3, False, Interval(6, 4, 8)),
            Crossover(4, False, None),
        ),
        critical=CriticalSize(Interval(11.4, 10, 14), 0.02, "a bend in 100 of 100 refits"),
        variance=Variance(
            between_starts=0.039,
            drift=0.062,
            between_blocks=0.018,
            trend=_interval(0.021, 0.034),
            limit=Limit("the table over the fixed K", Source.BLOCKS),
        ),
        decision=decision,
        warnings=(_warning("dsd B=16 K=2 failed in 6 blocks: out of memory"),),
    )


def _shown(profile: Profile, width: int = WIDTH) -> str:
    console = Console(width=width, file=StringIO(), color_system=None)
    console.print(render(profile))
    output = console.file
    assert isinstance(output, StringIO)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


WHOLE = """\
TPOT in ms, * is the best of its batch size B; below it the gain over no
speculation ±half its 95 % interval

  B  no spec    K=0     K=1     K=2
 ───────────────────────────────────
  1     38.6   38.2    26.4   *24.5
              +1±3%  +32±6%  +37±9%
  4     40.1   41.6   *29.6    30.2
              -4±3%  +26±6%  +25±9%
 16     51.3   54.9   *51.0       -
              -7±3%   +1±6%


Acceptance length    K=1 1.60 [1.57, 1.63], K=2 1.90 [1.85, 1.95]
Accepted by position 1: 60.0% [57.0%, 63.0%], 2: 30.0% [28.0%, 32.0%]
Tax of K=0           over no speculation, in the table's engine (detectable):
                     B=1 -1.1% [-3.1%, +0.9%] (2.9%), B=4 +3.7% [+1.7%, +5.7%]
                     (2.9%), B=16 +7.0% [+5.0%, +9.0%] (2.9%)
Critical BS*K        11 [10, 14] tokens in flight; a bend in 100 of 100 refits
Cells foretold       4 of 5 cells follow from their neighbours; median error
                     1.0%, 90th percentile 3.0%
Stops paying         K=1 pays at every size measured; K=2 at B=14 [11, 20]; K=3
                     at B=6 [4, 8] (it pays above); K=4 never pays
Scatter of cells     6 excellent, 3 good, 2 poor; the most at dsd B=1 K=2, 21.0%
Noise                3.9% between engine starts, 6.2% drift of the machine
                     between visits, 1.8% between blocks of a visit; +2.1%
                     [-1.3%, +5.5%] from the first block to the last
Closest call         the table over the fixed K; what limits it is scatter of
                     blocks

Verdict: deploy this table: [[1,2,2],[3,12,1],[13,16,0]]
  Why        the table saves 25.0% [20.0%, 30.0%] of TPOT over no speculation.
  Table      [[1,2,2],[3,12,1],[13,16,0]] saves 25.0% [20.0%, 30.0%] (7.1%
             detectable)
  Over fixed the table saves 8.0% [6.0%, 10.0%] over the fixed K (3.0%
             detectable); 7.0% if judged on other noise than chosen by
  Fixed K    1 saves 24.0% [19.0%, 29.0%] (7.1% detectable); at its worst batch
             size it loses 5.1%
  Objective  TPOT
  Weights    every doubling of the batch size counts alike
  After B=2  K=2 to K=1 (tied from B=2 to 6); then saves 2.3% [-0.8%, 5.4%]; not
             measured between 1 and 4
  After B=12 K=1 to K=0 (no ties); K=1 was not measured there
  Rivals     K=0 at B=8 to 12; K=1 at B=2; K=2 at B=3 to 6, 9: not surely worse
             than the table's K
  B=13 to 16 no speculation would be 7.0% [6.0%, 8.0%] faster there
  Note       K=2 is the largest tried
  Warning    dsd B=16 K=2 failed in 6 blocks: out of memory. See the log."""


def test_the_whole_view() -> None:
    """A profile reads at 80 columns as it does here, to the letter."""
    assert _shown(_profile()) == WHOLE


def _wide(k_max: int, ms: float, gain: float) -> Profile:
    """A profile with `k_max` Ks and a fixed one, all cells alike, with the intervals of a very noisy run."""
    cells = [Cell(Arm.NO_SPEC, 1, 0), Cell(Arm.STATIC, 1, k_max), *(Cell(Arm.DSD, 1, k) for k in range(k_max + 1))]
    estimate = CellEstimate(
        cells[0], _interval(ms, 0), _interval(ms / 1e3, ms / 1e4), _interval(gain, 1.1), 3, 6, 1.0, None
    )
    profile = _profile()
    return replace(
        profile,
        request=replace(profile.request, batch_sizes=(1, 16), ks=tuple(range(k_max + 1))),
        cells=tuple(replace(estimate, cell=cell) for cell in cells),
    )


@pytest.mark.parametrize("k_max", [1, 4, 5, 8])
@pytest.mark.parametrize(("ms", "gain"), [(9.87, 0.31), (98.7, -0.04), (99.96, 0.0), (987.6, -1.25)])
def test_wide_grids_lose_nothing(k_max: int, ms: float, gain: float) -> None:
    """At 80 columns every value, gain and interval is whole, however many Ks there are."""
    shown = _shown(_wide(k_max, ms, gain))
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= WIDTH
    value = f"{ms:.1f}" if ms < 99.95 else f"{ms:.0f}"
    grid = shown[: shown.index("Acceptance length")]
    assert grid.count(f"*{value}") == k_max + 3
    assert grid.count(f"{gain * 100:+.0f}") == k_max + 2
    assert grid.count("±110%") == k_max + 2


def test_long_texts_wrap_beside_their_label() -> None:
    """A long reason, a long warning and a table of many ranges stay inside 80 columns, and whole."""
    profile = _profile()
    dense = [k for b in range(32) for k in ((b % 7),) * 4]
    decision = replace(profile.decision, table=Table.from_dense(dense), max_num_seqs=128, reason="because " * 40)
    shown = _shown(replace(profile, decision=decision, warnings=(_warning("beware " * 40),)))
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert shown.count("because") == 40
    assert shown.count("beware") == 40
    lists = str(decision.table.as_lists()).replace(" ", "")
    assert lists in "".join(line.strip() for line in shown.splitlines()).replace(" ", "")


@pytest.mark.parametrize(
    ("verdict", "headline"),
    [
        (Verdict.FIXED, "Verdict: use this fixed K: 1"),
        (Verdict.OFF, "Verdict: turn speculation off"),
        (Verdict.UNCLEAR, "Verdict: cannot tell"),
    ],
)
def test_the_verdict_is_one_line(verdict: Verdict, headline: str) -> None:
    """Each verdict has a line of its own, with what is to be deployed and nothing else."""
    profile = _profile()
    shown = _shown(replace(profile, decision=replace(profile.decision, verdict=verdict)))
    assert headline in shown.splitlines()


def test_no_bend_is_told_in_words() -> None:
    """Without a critical size the reader learns why."""
    profile = replace(_profile(), critical=CriticalSize(None, 0.02, "no bend: step time grows evenly"))
    assert "Critical BS*K        no bend: step time grows evenly" in _shown(profile)


def test_engine_words_are_not_markup() -> None:
    """Brackets in a reason or a warning are printed as they are."""
    assert "[/bold] died [red]" in _shown(replace(_profile(), warnings=(_warning("[/bold] died [red]"),)))
