import numpy as np
import pytest

from dsd_tune.engines.cost_law import CostLaw as Truth
from dsd_tune.model.cost import critical_size, fit_law, law_of
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CriticalSize

SIZES = (1, 2, 4, 8, 16, 32)
CELLS = [Cell(Arm.NO_SPEC, b, 0) for b in SIZES] + [Cell(Arm.DSD, b, k) for b in SIZES for k in range(5)]
BENT = Truth(critical_tokens=24, slope_s=0.0005)
STRAIGHT = Truth(critical_tokens=10_000)


def _steps(truth: Truth, scatter: float = 0.0, seed: int = 0) -> Array:
    noise = scatter * np.random.default_rng(seed).standard_normal(len(CELLS))
    return np.array([truth.step_s(cell) for cell in CELLS]) * np.exp(noise)


def _drawn(step_s: Array, scatter: float) -> Sampled:
    point = np.log(step_s)
    return Sampled(point, point + scatter * np.random.default_rng(9).standard_normal((20, len(point))))


def test_a_law_of_this_form_is_recovered() -> None:
    """Cells that obey the law come back within 5 %, and its bend to the fineness of the sizes tried."""
    truth = Truth(critical_tokens=24, slope_s=0.0005, tax_request_s=0)
    law = fit_law(CELLS, _steps(truth))
    assert law.critical == pytest.approx(24, rel=0.2)
    np.testing.assert_allclose(law.step_s(CELLS), _steps(truth), rtol=0.05)


def test_the_law_behind_a_critical_size_is_found_again() -> None:
    """Cells and a critical size give the law that they come from, and none where its error says that none holds."""
    step_s = _steps(BENT)
    known = critical_size(CELLS, _drawn(step_s, 0.01))
    law = law_of(CELLS, step_s, known)
    assert law
    assert known.tokens
    assert law.critical == known.tokens.value
    assert np.median(np.abs(law.step_s(CELLS) / step_s - 1)) == pytest.approx(known.relative_error, abs=0.005)
    assert law_of(CELLS, step_s, CriticalSize(None, 0.5, "no smooth law holds")) is None


@pytest.mark.parametrize("critical_tokens", [8, 16, 40])
def test_bend_is_recovered_through_noise(critical_tokens: int) -> None:
    """With 2 % scatter a cell, the median bend over seeds is within a third of the true one."""
    truth = Truth(critical_tokens=critical_tokens, slope_s=0.0006)
    bends = [fit_law(CELLS, _steps(truth, 0.02, seed)).critical or np.nan for seed in range(7)]
    assert np.median(bends) == pytest.approx(critical_tokens, rel=1 / 3)


def test_even_growth_has_no_bend() -> None:
    """Where step time grows evenly no bend is claimed, whatever the noise looks like."""
    for seed in range(7):
        assert fit_law(CELLS, _steps(STRAIGHT, 0.02, seed)).critical is None


def test_one_wild_cell_does_not_move_the_bend() -> None:
    """A cell that took four times as long changes neither the bend nor the other cells' predictions much."""
    calm = _steps(BENT, 0.01)
    wild = calm.copy()
    wild[CELLS.index(Cell(Arm.DSD, 2, 3))] *= 4
    fits = [fit_law(CELLS, steps) for steps in (calm, wild)]
    assert fits[1].critical == pytest.approx(fits[0].critical, rel=0.4)
    np.testing.assert_allclose(fits[1].step_s(CELLS), fits[0].step_s(CELLS), rtol=0.05)


def test_one_wild_cell_makes_no_bend() -> None:
    """A single outlier is not taken for a bend of a straight law."""
    steps = _steps(STRAIGHT, 0.01)
    steps[CELLS.index(Cell(Arm.DSD, 16, 4))] *= 3
    assert fit_law(CELLS, steps).critical is None


def test_terms_are_never_negative() -> None:
    """Times that fall with the batch size are not explained by negative costs."""
    steps = np.array([0.05 - 0.001 * cell.batch_size for cell in CELLS])
    assert min(fit_law(CELLS, steps).coefficients) >= 0


def test_critical_size_has_an_interval_that_holds_the_truth() -> None:
    """The bend comes with an interval from refits, and says in how many of them it was seen."""
    size = critical_size(CELLS, _drawn(_steps(BENT, 0.01), 0.01))
    assert size.tokens is not None
    assert size.tokens.low <= 24 * 1.25
    assert size.tokens.high >= 24 * 0.8
    assert size.remark == "a bend in 20 of 20 refits"
    assert size.relative_error < 0.03


def test_no_bend_is_said_in_words() -> None:
    """Without a bend there is no number, but a remark."""
    size = critical_size(CELLS, _drawn(_steps(STRAIGHT, 0.01), 0.01))
    assert size.tokens is None
    assert "no bend" in size.remark


def test_no_critical_size_where_no_law_holds() -> None:
    """Step times that no smooth law explains have no critical size, and no even growth either."""
    steps = _steps(STRAIGHT) * np.exp(0.4 * np.random.default_rng(3).standard_normal(len(CELLS)))
    size = critical_size(CELLS, _drawn(steps, 0.01))
    assert size.tokens is None
    assert "no smooth law holds" in size.remark


def test_a_law_that_does_not_fit_says_so() -> None:
    """A cliff that no bend explains shows as a large relative error."""
    smooth = critical_size(CELLS, _drawn(_steps(BENT), 0.001))
    cliff = critical_size(CELLS, _drawn(_steps(Truth(critical_tokens=24, cliff_tokens=9, cliff_s=0.03)), 0.001))
    assert cliff.relative_error > 5 * smooth.relative_error
