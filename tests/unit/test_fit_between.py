"""Fits of sweeps that looked in between their anchors, at few Ks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import a_failure
from sweeping import Shelf, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.model.aim import Aim
from dsd_tune.quality.judge import judge
from dsd_tune.records.measurement import Arm, Cell, Phase
from dsd_tune.records.profile import Profile
from dsd_tune.solve import decide

LAW = CostLaw(critical_tokens=10, slope_s=0.001)
NOISE = Noise(start_sd=0.01, drift_per_hour=0.02, step_sd=0.01, outlier_share=0.0)


def _swept(**changed: Any) -> Shelf:
    engine = SimulatedEngine(LAW, (0.8, 0.7), noise=NOISE, max_num_seqs=16, alive_together=8)
    return swept(engine, **{"starts": 3, "rounds": 4} | changed)


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    """A sweep of the anchors alone."""
    return _swept()


def _profile(shelf: Shelf) -> Profile:
    fit = Fit(shelf.manifest, shelf.samples())
    return fit.profile(decide(fit.surface, fit.max_num_seqs, Aim(capture_limit=fit.capture_limit)), 3.0, "0.1.0")


def _refined(size: int = 8, ks: tuple[int, ...] = (0, 1)) -> Shelf:
    """A sweep that measured one batch size between its anchors, at some Ks only, in the same engines."""
    shelf = _swept(batch_sizes=(1, 4, size, 16))
    manifest = replace(shelf.manifest, request=replace(shelf.manifest.request, batch_sizes=(1, 4, 16)))
    kept = [s for s in shelf.kept if s.cell.batch_size != size or s.cell.arm is Arm.NO_SPEC or s.cell.k in ks]
    return Shelf(manifest, kept)


def test_batch_sizes_come_from_the_blocks() -> None:
    """What was measured between the anchors counts like them, and Ks left out there are no reason to doubt."""
    refined = _refined()
    fit = Fit(refined.manifest, refined.samples())
    assert fit.batch_sizes == (1, 4, 8, 16)
    assert fit.surface.filled == {Cell(Arm.DSD, 8, 2)}
    assert fit.surface.untried == frozenset()
    assert judge(refined.manifest, refined.samples(), fit.findings) == ()
    assert not [r for r in _profile(refined).decision.remarks if "was not measured" in r]


def test_what_was_filled_in_is_no_measurement() -> None:
    """A cell that was read off is neither listed nor taxed, and lies between those it was read off."""
    refined = _refined(ks=(1,))
    profile, fit = _profile(refined), Fit(refined.manifest, refined.samples())
    assert Cell(Arm.DSD, 8, 2) not in {e.cell for e in profile.cells}
    assert [tax.batch_size for tax in profile.k0_tax] == [1, 4, 16]
    times = np.exp(fit.surface.dsd.point[:, 2])
    assert times[1] < times[2] < times[3]


def test_an_anchor_is_never_filled_in(shelf: Shelf) -> None:
    """At a batch size that was asked for, a K that is missing is untried, and no best K is claimed there."""
    kept = [s for s in shelf.kept if (s.cell.batch_size, s.cell.k) != (4, 2)]
    assert Fit(shelf.manifest, kept).surface.untried == {(4, 2)}


def test_a_failed_cell_is_not_filled_in() -> None:
    """What failed between the anchors stays empty, though it ran on either side."""
    refined = _refined()
    failed = a_failure(cell=Cell(Arm.DSD, 8, 2), phase=Phase.MAIN)
    assert Fit(refined.manifest, [*refined.kept, failed]).surface.filled == frozenset()
