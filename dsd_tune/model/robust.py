"""How far blocks lie from what the others say, and how much each counts: one bad block must not move a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dsd_tune.model.sampled import Array

TRUSTED = 3.0
"""Up to this many robust deviations a block counts fully: without outliers nearly all of them do."""

UNLIKE = 2.5
"""A cell whose median block lies so many deviations away scatters more than its neighbours, as a whole."""

ENOUGH_TO_JUDGE = 10
"""Degrees of freedom below which a robust deviation is itself luck, and every block counts fully; and what the common
scatter weighs beside that of one batch size."""

_MEDIAN_OF_NORMAL = 0.6745
_ROUNDS = 30
_NO_FREEDOM = 1e-9


@dataclass(frozen=True, slots=True)
class Standing:
    """Of n values, each shape (n,).

    `distance` is that from the robust fit, `deviations` the same in deviations of the value's own cell, `weights` what
    that leaves of it, `spread` the scatter of its cell relative to the common one, and `freedom` the share of the value
    that does not go into its own fit.
    """

    distance: Array
    deviations: Array
    weights: Array
    spread: Array
    freedom: Array

    @property
    def precision(self) -> Array:
        """What a value counts in a mean, 1 being a good block of usual scatter."""
        return np.asarray(self.weights / self.spread**2)


def standing(design: Array, values: Array, of_cell: Array, of_size: Array) -> Standing:
    """Fit `values` by the columns of `design`, shape (n, p), by least squares with weights that fall beyond `TRUSTED`.

    A value u deviations away weighs (TRUSTED / u)^2 there, so that the further it lies the less it pulls, as with
    Student t errors (Lange et al. 1989), while good values are left alone. `of_cell` and `of_size` are memberships,
    shape (n, groups): a batch size has its own scatter, as far as its blocks tell, and so has a cell that is unlike it.
    """
    basis = _basis(design)
    freedom = np.clip(1 - np.sum(basis**2, axis=1), 0, 1)
    ones = np.ones(len(values))
    found = Standing(_residuals(basis, values, ones), np.zeros(len(values)), ones, ones, freedom)
    if freedom.sum() < ENOUGH_TO_JUDGE:
        return found
    # The spreads come second: least squares alone shares a bad block out, so that its whole cell looks wild.
    found = _settled(found, basis, values, lambda _: ones)
    return _settled(found, basis, values, lambda common: _spread(common, freedom, of_cell, of_size))


def _settled(found: Standing, basis: Array, values: Array, spread_of: Callable[[Array], Array]) -> Standing:
    """Reweighted until nothing moves."""
    for _ in range(_ROUNDS):
        before, found = found, _judged(found, spread_of)
        if np.allclose(before.precision, found.precision, rtol=1e-3):
            break
        found = replace(found, distance=_residuals(basis, values, found.precision))
    return found


def _basis(design: Array) -> Array:
    """Orthonormal columns that span those of `design`, which may depend on each other."""
    left, sizes, _ = np.linalg.svd(design, full_matrices=False)
    return np.asarray(left[:, sizes > sizes[0] * 1e-9])


def _residuals(basis: Array, values: Array, weights: Array) -> Array:
    weighted = basis * weights[:, None]
    return np.asarray(values - basis @ np.linalg.solve(weighted.T @ basis, weighted.T @ values))


def _judged(found: Standing, spread_of: Callable[[Array], Array]) -> Standing:
    """New deviations, weights and spreads from the distances."""
    free = found.freedom > _NO_FREEDOM
    studentised = np.where(free, found.distance / np.sqrt(np.where(free, found.freedom, 1.0)), 0.0)
    common = studentised / max(_scale(studentised[free]), 1e-9)
    spread = spread_of(common)
    deviations = common / spread
    return replace(found, deviations=deviations, weights=_weights(deviations), spread=spread)


def _weights(deviations: Array) -> Array:
    return np.asarray((TRUSTED / np.maximum(np.abs(deviations), TRUSTED)) ** 2)


def _scale(values: Array) -> float:
    """The standard deviation of normal values, from their median size: half of them may be anything."""
    return float(np.median(np.abs(values))) / _MEDIAN_OF_NORMAL


def _spread(common: Array, freedom: Array, of_cell: Array, of_size: Array) -> Array:
    """Scatter of each value's cell: that of its batch size, unless the cell is unlike it."""
    spread = np.ones(len(common))
    free = freedom > _NO_FREEDOM
    for size in of_size.T.astype(bool) & free:
        usual = max(1.0, _scale(common[size])) if size.any() else 1.0
        cells = [cell & size for cell in of_cell.T.astype(bool) if (cell & size).any()]
        unlike = [cell for cell in cells if _scale(common[cell]) * _MEDIAN_OF_NORMAL > UNLIKE * usual]
        like = size & ~np.any([np.zeros_like(size), *unlike], axis=0)
        spread[like] = _drawn_to_common(common[like], freedom[like], usual)
        for cell in unlike:
            spread[cell] = _scale(common[cell])
    return spread


def _drawn_to_common(common: Array, freedom: Array, usual: float) -> float:
    """Scatter of one batch size, which the common one (1) enters with `ENOUGH_TO_JUDGE` degrees of freedom."""
    counted = freedom * _weights(common / usual) ** 2
    return float(np.sqrt((ENOUGH_TO_JUDGE + counted @ common**2) / (ENOUGH_TO_JUDGE + counted.sum())))
