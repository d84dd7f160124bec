"""Blocks that lie far from their own cell: to be taken again once, named in any case, and never dropped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from dsd_tune.model.timing import Timings, collect
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Block, Cell, Failure, Phase

FAR = 4.0
"""Robust deviations: of good blocks one in ten thousand lies as far."""

MATTERS = 0.02
"""A block closer than this, as a share, could not change which Ks are tied."""


def comparable(samples: Iterable[Block | Failure]) -> dict[tuple[Phase, Condition], list[Block]]:
    """The blocks of each phase and condition, in the order in which they were taken."""
    groups: dict[tuple[Phase, Condition], list[Block]] = defaultdict(list)
    for sample in samples:
        if isinstance(sample, Block):
            groups[sample.phase, sample.condition].append(sample)
    return groups


def odd_blocks(samples: Iterable[Block | Failure]) -> list[tuple[Block, float]]:
    """Blocks far from what their cell, start and round say, and by how much, as a share."""
    odd: list[tuple[Block, float]] = []
    for blocks in comparable(samples).values():
        odd += odd_among(blocks, collect(blocks))
    return odd


def odd_among(blocks: Sequence[Block], timings: Timings) -> list[tuple[Block, float]]:
    """Those of comparable blocks that lie far off, and by how much; `timings` are laid out from these blocks."""
    away = np.expm1(timings.standing.distance)
    far = (np.abs(timings.standing.deviations) > FAR) & (np.abs(away) > MATTERS)
    return [(blocks[i], float(away[i])) for i in np.flatnonzero(far)]


def suspects(samples: Iterable[Block | Failure]) -> list[Block]:
    """The odd blocks whose cell their engine has visited once, in the order in which they were taken.

    A cell that contradicts itself may have several. Where it is taken again another cell of its batch size belongs in
    the same visit, since that tells how fast the machine is then.
    """
    rows = list(samples)
    visits = defaultdict(set)
    for sample in rows:
        if sample.stop == sample.cell.batch_size:
            visits[_place(sample)].add(sample.repetition)
    odd = [block for block, _ in odd_blocks(rows) if block.stop == block.cell.batch_size]
    return [block for block in odd if visits[_place(block)] == {block.repetition}]


def _place(sample: Block | Failure) -> tuple[Phase, Condition, int, Cell]:
    return sample.phase, sample.condition, sample.slot, sample.cell
