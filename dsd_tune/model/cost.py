"""A law for step time with one bend: flat-ish while verification is bound by weights, steeper past a critical size.

step = overhead + per_request*B + tax*[table's engine] + (draft + draft_per_request*B)*K
       + slope*max(0, B*(K+1) - critical)

The bend is the roofline's ridge seen from outside (weights are read once for all tokens in flight until
arithmetic takes longer). All terms are non-negative; the fit is weighted to relative errors and made robust
by reweighting (Huber), so that one bad cell bends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CriticalSize

_BENDS_TRIED = 24
_REFITS = 100
_CELLS_REFITTED = 20_000
"""Over all refits: a large grid needs fewer of them, since its bend is the surer."""
_HUBER = 1.345
_HOLDS = 0.08
"""With a larger median error the law describes something else, as that of a dense model does a mixture of experts."""
_ENOUGH_TO_HOLD = 18
"""Three cells for each of the law's terms: fewer fit it by having so few."""

_WORTH_A_BEND = 0.8
"""A bend must leave at most this share of the unexplained error, or the straight law is kept."""


@dataclass(frozen=True, slots=True)
class CostLaw:
    """A fitted law. `critical` is in tokens and None when the straight law explains the cells as well."""

    coefficients: tuple[float, ...]
    critical: float | None
    loss: float

    def step_s(self, cells: Sequence[Cell]) -> Array:
        """Predicted step times in seconds, shape (len(cells),)."""
        return np.asarray(_with_bend(_design(cells), self.critical) @ np.array(self.coefficients), dtype=np.float64)

    def median_error(self, cells: Sequence[Cell], step_s: Array) -> float:
        """Half of these cells lie closer to the law than this share of their step time."""
        return float(np.median(np.abs(self.step_s(cells) / step_s - 1)))


def fit_law(cells: Sequence[Cell], step_s: Array) -> CostLaw:
    """Fit the law to one step time a cell, in seconds."""
    design = _design(cells)
    straight = _fit_at(design, step_s, None)
    tokens = _tokens(design)
    tried = np.geomspace(max(1.0, tokens.min()), tokens.max(), _BENDS_TRIED)[:-1]
    bent = min((_fit_at(design, step_s, float(bend)) for bend in tried), key=lambda law: law.loss)
    return bent if bent.loss < _WORTH_A_BEND * straight.loss else straight


def smooth_law(cells: Sequence[Cell], step_s: Array) -> CostLaw | None:
    """The law where it holds; None where it does not, or where too few cells tell."""
    if len(cells) < _ENOUGH_TO_HOLD:
        return None
    law = fit_law(cells, step_s)
    return law if law.median_error(cells, step_s) <= _HOLDS else None


def law_of(cells: Sequence[Cell], step_s: Array, critical: CriticalSize) -> CostLaw | None:
    """The law behind a critical size found on such cells, to be drawn; None where no smooth law holds."""
    if critical.relative_error > _HOLDS:
        return None
    return _fit_at(_design(cells), step_s, critical.tokens.value if critical.tokens else None)


def critical_size(cells: Sequence[Cell], log_step: Sampled) -> CriticalSize:
    """The bend with its interval, from refits to draws; `log_step` has shape (len(cells),)."""
    step_s = np.exp(log_step.point)
    law = fit_law(cells, step_s)
    error = law.median_error(cells, step_s)
    if error > _HOLDS:
        return CriticalSize(None, error, f"no smooth law holds (median error {error:.0%}): only measured cells count")
    if law.critical is None:
        return CriticalSize(None, error, "no bend: step time grows evenly over the sizes measured")
    count = min(_REFITS, max(20, _CELLS_REFITTED // len(cells)))
    refits = [fit_law(cells, np.exp(draw)).critical for draw in log_step.draws[:count]]
    bends = [bend for bend in refits if bend is not None]
    low, high = np.quantile([*bends, law.critical], [0.025, 0.975])
    interval = Interval(law.critical, min(float(low), law.critical), max(float(high), law.critical))
    return CriticalSize(interval, error, f"a bend in {len(bends)} of {len(refits)} refits")


def _design(cells: Sequence[Cell]) -> Array:
    """The law's terms without the bend, shape (cells, 5)."""
    return np.array([(1.0, c.batch_size, c.arm is Arm.DSD, c.k, c.k * c.batch_size) for c in cells], dtype=float)


def _tokens(design: Array) -> Array:
    """Tokens in flight, B*(K+1)."""
    return np.asarray(design[:, 1] + design[:, 4])


def _with_bend(design: Array, critical: float | None) -> Array:
    tokens = _tokens(design)
    return np.column_stack([design, np.maximum(0.0, tokens - (np.inf if critical is None else critical))])


def _fit_at(design: Array, step_s: Array, critical: float | None) -> CostLaw:
    """Non-negative least squares on relative errors, twice reweighted.

    The loss is the sum of absolute relative errors: comparable between bends, and one wild cell cannot rule it.
    """
    terms = _with_bend(design, critical) / step_s[:, None]
    weights = np.ones(len(step_s))
    for _ in range(3):
        coefficients, _ = nnls(terms * weights[:, None], weights)
        errors = np.abs(terms @ coefficients - 1)
        scale = 1.4826 * np.median(errors) + 1e-12
        weights = np.sqrt(np.minimum(1.0, _HUBER * scale / np.maximum(errors, 1e-12)))
    return CostLaw(tuple(map(float, coefficients)), critical, float(np.sum(errors)))
