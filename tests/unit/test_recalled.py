from dataclasses import replace

import numpy as np
import pytest
from builders import a_profile
from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.model.recalled import surface_of, with_acceptance
from dsd_tune.model.sampled import Sampled
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, Profile
from dsd_tune.solve import decide


@pytest.fixture(scope="module")
def fit() -> Fit:
    """A sweep with all three arms."""
    law = CostLaw(critical_tokens=8, slope_s=0.003, graphs_static=0.9)
    engine = SimulatedEngine(law, (0.8, 0.7), noise=Noise(), seed=3, max_num_seqs=16, alive_together=8)
    shelf = swept(engine, fixed_k=1, starts=3)
    return Fit(shelf.manifest, shelf.samples())


@pytest.fixture(scope="module")
def profile(fit: Fit) -> Profile:
    """What that sweep says."""
    return fit.profile(decide(fit.surface, 16), 1.0, "0.1.0")


def _widths(log_values: Sampled) -> np.ndarray:
    low, high = log_values.limits()
    return np.asarray(high - low)


def test_values_come_back_as_they_were(fit: Fit, profile: Profile) -> None:
    """Cells, acceptance lengths and fixed-K ratios are those that the decision was taken on."""
    surface = surface_of(profile, np.random.default_rng(0))
    assert (surface.batch_sizes, surface.ks, surface.table_assumed) == (fit.surface.batch_sizes, fit.surface.ks, False)
    assert surface.no_spec.point == pytest.approx(fit.surface.no_spec.point)
    assert surface.table_tpot().point == pytest.approx(fit.surface.table_tpot().point)
    assert surface.log_tokens.point == pytest.approx(fit.surface.log_tokens.point)
    assert surface.fixed_tpot(1).point == pytest.approx(fit.surface.fixed_tpot(1).point)


def test_gains_are_as_sure_as_they_were(fit: Fit, profile: Profile) -> None:
    """The interval of each K's gain over no speculation is as wide as the one that was stored."""
    surface = surface_of(profile, np.random.default_rng(0))
    for k in (0, 1, 2):
        before, after = (_widths(s.no_spec - s.table_tpot()[:, k]) for s in (fit.surface, surface))
        assert after == pytest.approx(before, rel=0.15)


def test_the_same_decision_follows(fit: Fit, profile: Profile) -> None:
    """Deciding on what was stored gives the table and the verdict that were stored."""
    again = decide(surface_of(profile, np.random.default_rng(0)), 16)
    assert again.table == profile.decision.table
    assert again.fixed_k == profile.decision.fixed_k
    assert again.verdict is profile.decision.verdict


def test_cells_between_the_anchors_are_read_off_as_they_were() -> None:
    """What a sweep left out between the batch sizes asked for comes back as the fit read it off."""
    law = CostLaw(critical_tokens=8, slope_s=0.003)
    engine = SimulatedEngine(law, (0.8, 0.7), noise=Noise(), seed=3, max_num_seqs=16, alive_together=8)
    shelf = swept(engine, fixed_k=1, starts=3, batch_sizes=(1, 4, 8, 16))
    request = replace(shelf.manifest.request, batch_sizes=(1, 4, 16))
    left_out = {Cell(Arm.DSD, 8, 2), Cell(Arm.STATIC, 8, 1)}
    fit = Fit(replace(shelf.manifest, request=request), [s for s in shelf.samples() if s.cell not in left_out])
    surface = surface_of(fit.profile(decide(fit.surface, 16), 1.0, "0.1.0"), np.random.default_rng(0))
    assert surface.filled == fit.surface.filled == {Cell(Arm.DSD, 8, 2)}
    assert surface.dsd.point == pytest.approx(fit.surface.dsd.point)
    assert surface.fixed_tpot(1).point == pytest.approx(fit.surface.fixed_tpot(1).point)


def test_another_drafter_changes_acceptance_alone(profile: Profile) -> None:
    """Step times stay; a step yields one token and the shares accepted."""
    surface = surface_of(profile, np.random.default_rng(0))
    other = with_acceptance(surface, (0.9, 0.5))
    assert np.exp(other.log_tokens.point) == pytest.approx([1.0, 1.9, 2.4])
    assert other.dsd is surface.dsd


def _import(*cells: Cell) -> Profile:
    about = Interval(0.02, 0.019, 0.021)
    estimates = tuple(CellEstimate(cell, None, about, None, 1, 1, 1.0) for cell in cells)
    return replace(a_profile(), environment=None, request=None, cells=estimates, acceptance_lengths=())


def test_an_import_of_fixed_ks_stands_for_the_table() -> None:
    """Where only fixed-K engines were measured they are the table's columns, and K=0 is no speculation."""
    cells = [Cell(arm, b, k) for b in (1, 4) for arm, k in ((Arm.NO_SPEC, 0), (Arm.STATIC, 2))]
    surface = surface_of(_import(*cells), np.random.default_rng(0))
    assert surface.table_assumed
    assert surface.ks == (0, 2)
    assert surface.static == {}
    assert surface.table_tpot().point == pytest.approx(np.log(np.full((2, 2), 0.02)))


def test_an_import_without_no_speculation_has_the_rest() -> None:
    """What was not measured is nan, and no more than that."""
    surface = surface_of(_import(Cell(Arm.DSD, 1, 1), Cell(Arm.DSD, 4, 2)), np.random.default_rng(0))
    assert np.isnan(surface.no_spec.point).all()
    assert np.isfinite(surface.dsd.point).tolist() == [[False, True, False], [False, False, True]]
    assert (4, 1) in surface.untried
