"""Cells left out where they could not win, read off between batch sizes where they were measured."""

from __future__ import annotations

import numpy as np

from dsd_tune.model.sampled import Array, Sampled


def fill(log_step: Sampled, batch_sizes: tuple[int, ...], may_fill: Array) -> Sampled:
    """Fill unmeasured cells of `log_step`, shape (batch sizes, columns), where `may_fill`, of that shape, is 1.

    A column is read off, linear in log B, by how it differs from another that was measured at this batch size and at
    the two around it: so what the machine's drift did to the whole batch size drops out. Nothing outside is claimed.
    """
    known = np.isfinite(log_step.point)
    point, draws = log_step.point.copy(), log_step.draws.copy()
    for row, column in np.argwhere((may_fill > 0) & ~known):
        below, above = _around(known[:, column], int(row))
        if below is None or above is None:
            continue
        beside = np.flatnonzero(known[[below, row, above]].all(axis=0))
        if not beside.size:
            continue
        other = beside[np.argmin(np.abs(beside - column))]
        share = np.log(batch_sizes[row] / batch_sizes[below]) / np.log(batch_sizes[above] / batch_sizes[below])
        for values in (point, draws):
            apart = values[..., column] - values[..., other]
            read_off = (1 - share) * apart[..., below] + share * apart[..., above]
            values[..., row, column] = values[..., row, other] + read_off
    return Sampled(point, draws)


def _around(known: Array, row: int) -> tuple[int | None, int | None]:
    """The next known rows below and above one."""
    rows = np.flatnonzero(known)
    below, above = rows[rows < row], rows[rows > row]
    return (int(below[-1]) if below.size else None), (int(above[0]) if above.size else None)
