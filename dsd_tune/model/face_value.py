"""How a reader takes a grid of single values: the best K of each batch size, as if no number were luck."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import log

from dsd_tune.model.claims import JUMP
from dsd_tune.model.published import batch_sizes, missing_cells
from dsd_tune.model.ranges import TIE
from dsd_tune.records.published import Published
from dsd_tune.records.table import Table


@dataclass(frozen=True, slots=True)
class FaceValue:
    """Mean TPOT in seconds as published, by batch size and K: the luck of the text is in it."""

    tpot_s: dict[int, dict[int, float]]

    @property
    def table(self) -> Table:
        """At each measured batch size the smallest K within `TIE` of the best, carried up to the next one.

        A K whose TPOT jumps before the next batch size ends where it was measured, and the next K begins above it.
        """
        sizes = sorted(self.tpot_s)
        dense = [self._smallest_tied(sizes[0])] * sizes[0]
        for left, right in pairwise(sizes):
            k = self._smallest_tied(left)
            here, there = self.tpot_s[left][k], self.tpot_s[right][k]
            jumps = log(there / here) > log(right / left) + JUMP
            then = self._smallest_tied(right)
            dense += [then if jumps else k] * (right - left - 1) + [then]
        return Table.from_dense(dense)

    def worst_loss(self, k: int) -> float:
        """The largest share of TPOT that the best K of a batch size saves over `k`."""
        return max(self._loss(batch_size, k) for batch_size in self.tpot_s)

    def _smallest_tied(self, batch_size: int) -> int:
        return min(k for k in self.tpot_s[batch_size] if self._loss(batch_size, k) <= TIE)

    def _loss(self, batch_size: int, k: int) -> float:
        row = self.tpot_s[batch_size]
        return 1 - min(row.values()) / row[k]


def face_value(published: Published) -> FaceValue | None:
    """What an import says by itself; None from one batch size, of mixed arms, and where a cell or TPOT is missing."""
    cells = {row.cell for row in published.rows}
    mixed = len(cells) > len({(cell.batch_size, cell.k) for cell in cells})
    if len(batch_sizes(published)) == 1 or mixed or missing_cells(published):
        return None
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in published.rows:
        if row.tpot_s is None:
            return None
        found[row.cell.batch_size][row.cell.k].append(row.tpot_s)
    return FaceValue({b: {k: sum(v) / len(v) for k, v in row.items()} for b, row in found.items()})
