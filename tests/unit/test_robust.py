from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planting import BOTH, GRID, drawn_from, holds, log_truth, planted, width

from dsd_tune.model.robust import standing
from dsd_tune.model.suspects import suspects
from dsd_tune.model.timing import collect, estimate_noise, variations
from dsd_tune.records.measurement import Block, Cell, Phase

Spoil = Callable[[list[Block], np.random.Generator], list[Block]]


def _slowed(block: Block, factor: float) -> Block:
    return replace(block, step_s=tuple(factor * second for second in block.step_s))


def _spoilt(share: float, factor: float) -> Spoil:
    """Slows a share of the blocks down, wherever they lie."""
    return lambda blocks, rng: [_slowed(b, factor) if rng.random() < share else b for b in blocks]


def _run(seed: int, spoil: Spoil, **planned: int) -> tuple[list[Block], np.random.Generator]:
    rng = np.random.default_rng(seed)
    blocks = planted(rng, start_sd=0.01, drift_sd=0.02, block_sd=0.02, cells=BOTH, **planned)
    return spoil(blocks, rng), rng


@pytest.mark.parametrize(("starts", "rounds"), [(3, 2), (2, 2), (2, 4)])
@pytest.mark.parametrize(
    "spoil", [_spoilt(0, 1), _spoilt(0.02, 1.3), _spoilt(0.05, 1.3), _spoilt(0.02, 3)], ids=["clean", "2%", "5%", "far"]
)
def test_intervals_hold_the_truth_under_outliers(spoil: Spoil, starts: int, rounds: int) -> None:
    """Whether or not blocks went wrong, 92 to 98 in 100 intervals of the difference of two Ks hold the truth.

    The bounds are a standard error wider, since these are 40 runs.
    """
    truth = log_truth()[:, 1:] - log_truth()[:, :1]
    held = []
    for seed in range(40):
        drawn = drawn_from(*_run(seed, spoil, starts=starts, rounds=rounds))
        held.append(holds(drawn[:, 1:] - drawn[:, [0, 0]], truth).mean())
    assert 0.905 < np.mean(held) < 0.985


def test_one_bad_block_moves_nothing() -> None:
    """A block at twice its time moves its cell by less than the cell's own interval, and widens no other."""
    blocks, _ = _run(1, _spoilt(0, 1))
    clean = drawn_from(blocks, np.random.default_rng(0))
    place = next(i for i, block in enumerate(blocks) if block.cell == GRID[1][1])
    spoilt = drawn_from([_slowed(b, 2) if i == place else b for i, b in enumerate(blocks)], np.random.default_rng(0))
    low, high = (clean[1, 1] - clean[1, 0]).limits()
    assert low < (spoilt[1, 1] - spoilt[1, 0]).point < high
    assert width(spoilt[:, 2] - spoilt[:, 0]) < 1.2 * width(clean[:, 2] - clean[:, 0])


def test_good_blocks_count_fully() -> None:
    """Without outliers hardly any block loses weight, so nothing is thrown away by being careful."""
    weights = [collect(_run(seed, _spoilt(0, 1))[0]).standing.weights for seed in range(20)]
    assert np.mean(weights) > 0.99


def test_outliers_are_not_noise() -> None:
    """The scatter of blocks is told from the good ones."""
    sds = [estimate_noise(collect(_run(seed, _spoilt(0.02, 2))[0])).blocks.sd for seed in range(20)]
    assert np.mean(sds) == pytest.approx(0.02, rel=0.15)


def test_a_lone_value_is_trusted() -> None:
    """Where nothing repeats it a value cannot be judged, and counts fully."""
    stands = standing(np.eye(30), np.arange(30.0), np.eye(30), np.ones((30, 1)))
    assert set(stands.weights) == {1.0}
    assert not stands.deviations.any()


def test_few_values_are_not_judged() -> None:
    """From a handful of values no outlier is named: the deviation it is measured by is itself luck."""
    one = np.ones((6, 1))
    stands = standing(one, np.array([0, 0.01, 0, 0.01, 0, 0.5]), one, one)
    assert set(stands.weights) == {1.0}


def _in_one_visit(blocks: list[Block]) -> list[Block]:
    """The same with every start's blocks of one batch size in a single visit, passes forward and back."""
    return [replace(block, repetition=0, round=block.repetition) for block in blocks]


def test_suspects_are_the_blocks_that_went_wrong() -> None:
    """Over many runs nearly all slowed blocks are named to be taken again, and nearly no other."""
    named, wrong, hit = 0, 0, 0
    for seed in range(20):
        clean, blocks = (_in_one_visit(_run(seed, spoil)[0]) for spoil in (_spoilt(0, 1), _spoilt(0.02, 1.3)))
        slowed = [block for block, before in zip(blocks, clean, strict=True) if block != before]
        found = suspects(blocks)
        named, wrong, hit = named + len(found), wrong + len(slowed), hit + len([b for b in found if b in slowed])
    assert hit > 0.9 * wrong
    assert named - hit < 0.002 * 20 * len(blocks)


def test_suspects_are_named_once() -> None:
    """A block that was taken again is not named again, whatever came out."""
    blocks = _in_one_visit(_run(3, _spoilt(0, 1))[0])
    bad = _slowed(blocks[7], 1.5)
    blocks[7] = bad
    assert suspects(blocks) == [bad]
    assert suspects([*blocks, replace(bad, repetition=1)]) == []


def test_blocks_are_judged_among_their_own() -> None:
    """Another phase may be slower altogether without any of its blocks being odd."""
    blocks, _ = _run(3, _spoilt(0, 1))
    later = [replace(_slowed(block, 2), phase=Phase.STATIC, start=block.start + 6) for block in blocks]
    assert suspects([*blocks, *later]) == []


def test_nothing_measured_has_no_suspects() -> None:
    """Without blocks there is nothing to take again."""
    assert suspects([]) == []


def _scattering(at: Callable[[Cell], bool], factor: float) -> Spoil:
    """Adds scatter at some cells, so that in all it is `factor` times that of the others."""
    more = 0.02 * np.sqrt(factor**2 - 1)
    return lambda blocks, rng: [
        _slowed(b, float(np.exp(more * rng.standard_normal()))) if at(b.cell) else b for b in blocks
    ]


@pytest.mark.parametrize("starts", [3, 4])
def test_a_noisy_batch_size_has_wide_intervals(starts: int) -> None:
    """Where blocks scatter three times as much as elsewhere intervals hold the truth still, and none is called odd."""
    truth = log_truth()[:, 1:] - log_truth()[:, :1]
    held, odd = [], 0
    for seed in range(50):
        blocks, rng = _run(seed, _scattering(lambda cell: cell.batch_size == 16, 3), starts=starts)
        drawn = drawn_from(blocks, rng)
        held.append(holds(drawn[:, 1:] - drawn[:, [0, 0]], truth))
        odd += len(suspects(blocks))
    assert np.mean(held) > 0.915
    assert np.mean(held, axis=0)[2].mean() > 0.84
    assert odd < 0.01 * 50 * len(blocks)


def test_a_noisy_cell_is_not_many_odd_blocks() -> None:
    """A cell that scatters as a whole keeps its blocks, has a wide interval, and leaves the others theirs."""
    wild = GRID[1][2]
    widths, odd = [], 0
    for seed in range(20):
        blocks, rng = _run(seed, _scattering(lambda cell: cell == wild, 10))
        drawn = drawn_from(blocks, rng)
        widths.append([width(drawn[1, k] - drawn[1, 0]) for k in (1, 2)])
        odd += len(suspects(blocks))
    calm, noisy = np.median(widths, axis=0)
    assert noisy > 4 * calm
    assert odd < 20


def test_variation_of_cells_comes_back() -> None:
    """The coefficient of variation of each cell is that of its blocks, without luck of starts and drift."""
    found = [variations(collect(_run(seed, _spoilt(0, 1), starts=4)[0])) for seed in range(20)]
    assert {cell for cvs in found for cell in cvs} == set(BOTH)
    squares = [[cvs[cell] ** 2 for cell in BOTH] for cvs in found]
    np.testing.assert_allclose(np.sqrt(np.mean(squares, axis=0)), 0.02, rtol=0.25)


def test_a_cell_measured_once_has_no_variation() -> None:
    """Without a repeat nothing is said of how a cell's blocks scatter."""
    blocks, _ = _run(0, _spoilt(0, 1))
    lone = next(i for i, block in enumerate(blocks) if block.cell == GRID[2][2])
    once = [b for i, b in enumerate(blocks) if b.cell != GRID[2][2] or i == lone]
    assert GRID[2][2] not in variations(collect(once))
