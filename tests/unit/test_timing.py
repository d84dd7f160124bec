from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
from builders import a_block

from dsd_tune.model.sampled import Sampled
from dsd_tune.model.timing import collect, draw_arm, estimate_noise
from dsd_tune.records.measurement import Arm, Block, Cell

GRID = [[Cell(Arm.DSD, b, k) for k in (0, 1, 2)] for b in (1, 4, 16)]
CELLS = [cell for row in GRID for cell in row]
OFF = [[Cell(Arm.NO_SPEC, b, 0)] for b in (1, 4, 16)]


def _truth_s(cell: Cell) -> float:
    return 0.02 + 0.001 * cell.batch_size * (cell.k + 1)


def _blocks(
    rng: np.random.Generator,
    *,
    start_sd: float,
    within_sd: float,
    cells: Iterable[Cell] = CELLS,
    starts: Iterable[int] = (0, 1, 2),
    rounds: int = 2,
) -> list[Block]:
    """Blocks of one step each, around the truth."""
    luck = {start: start_sd * rng.standard_normal() for start in starts}
    return [
        _block(cell, start, _truth_s(cell) * np.exp(luck[start] + within_sd * rng.standard_normal()))
        for start, cell, _ in product(luck, cells, range(rounds))
    ]


def _block(cell: Cell, start: int, *step_s: float) -> Block:
    return a_block(cell=cell, start=start, step_s=step_s, steps_run=len(step_s))


def _drawn(blocks: list[Block], rng: np.random.Generator, grid: list[list[Cell]] = GRID) -> Sampled:
    cells = collect(blocks)
    return draw_arm(cells, estimate_noise(cells), grid, rng)


def _log_truth(grid: list[list[Cell]] = GRID) -> np.ndarray:
    return np.log([[_truth_s(cell) for cell in row] for row in grid])


def _holds(estimate: Sampled, truth: np.ndarray) -> np.ndarray:
    low, high = estimate.limits()
    return (low <= truth) & (truth <= high)


@pytest.mark.parametrize(("start_sd", "within_sd"), [(0.05, 0.01), (0.01, 0.03), (0.03, 0.03)])
def test_start_luck_and_block_scatter_are_told_apart(start_sd: float, within_sd: float) -> None:
    """Over many runs both spreads come back as they were planted, whichever is the larger."""
    noises = [
        estimate_noise(collect(_blocks(np.random.default_rng(seed), start_sd=start_sd, within_sd=within_sd)))
        for seed in range(60)
    ]
    assert np.sqrt(np.mean([n.within_start**2 for n in noises])) == pytest.approx(within_sd, rel=0.1)
    assert np.sqrt(np.mean([n.between_starts**2 for n in noises])) == pytest.approx(start_sd, rel=0.35)


def test_degrees_of_freedom_count_starts_and_blocks() -> None:
    """Two arms of three starts leave four degrees between starts; blocks leave what cells and starts did not use."""
    blocks = _blocks(np.random.default_rng(0), start_sd=0.02, within_sd=0.01)
    off = _blocks(np.random.default_rng(1), start_sd=0.02, within_sd=0.01, cells=[r[0] for r in OFF], starts=(3, 4, 5))
    noise = estimate_noise(collect(blocks + off))
    assert noise.between_df == 4
    assert noise.within_df == len(blocks + off) - 9 - 3 - 4


def test_one_slow_step_does_not_move_a_block() -> None:
    """A block counts by the median of its steps."""
    calm = collect([_block(CELLS[0], 0, 0.02, 0.02, 0.02)])
    shaken = collect([_block(CELLS[0], 0, 0.02, 0.02, 0.9)])
    assert calm == shaken


def test_ks_of_one_engine_share_its_luck() -> None:
    """The difference of two Ks of one engine is far surer than either of them."""
    rng = np.random.default_rng(3)
    drawn = _drawn(_blocks(rng, start_sd=0.06, within_sd=0.005), rng)
    alone = drawn.draws[:, 0, 0]
    difference = drawn.draws[:, 0, 0] - drawn.draws[:, 0, 2]
    assert difference.std() < 0.3 * alone.std()


def test_arms_do_not_share_luck() -> None:
    """The difference of two arms is less sure than either of them."""
    rng = np.random.default_rng(4)
    off_cells = [row[0] for row in OFF]
    blocks = _blocks(rng, start_sd=0.05, within_sd=0.005)
    blocks += _blocks(rng, start_sd=0.05, within_sd=0.005, cells=off_cells, starts=(3, 4, 5))
    dsd, off = _drawn(blocks, rng), _drawn(blocks, rng, OFF)

    def width(estimate: Sampled) -> float:
        low, high = estimate.limits()
        return float((high - low)[0])

    assert width((dsd - off)[:, 0]) > 1.2 * width(dsd[:, 0])


def test_intervals_hold_the_truth() -> None:
    """Nine in ten 95 % intervals or more hold the true step time, as do those of differences within an engine."""
    absolute, relative = [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        drawn = _drawn(_blocks(rng, start_sd=0.03, within_sd=0.02), rng)
        absolute.append(_holds(drawn, _log_truth()).mean())
        relative.append(_holds(drawn[:, 1] - drawn[:, 0], _log_truth()[:, 1] - _log_truth()[:, 0]).mean())
    assert np.mean(absolute) > 0.9
    assert np.mean(relative) > 0.9


def test_a_single_start_is_not_trusted() -> None:
    """With one start an arm, an interval is wider than engines of one kind were ever seen apart."""
    rng = np.random.default_rng(5)
    low, high = _drawn(_blocks(rng, start_sd=0.0, within_sd=0.001, starts=(0,)), rng).limits()
    assert np.all(high - low > 0.3)


def _interrupted(rng: np.random.Generator, start_sd: float, within_sd: float) -> list[Block]:
    """Three starts that took the large batch sizes twice, then died; three more that took the rest once."""
    before = _blocks(rng, start_sd=start_sd, within_sd=within_sd, cells=CELLS[:5], rounds=2)
    after = _blocks(rng, start_sd=start_sd, within_sd=within_sd, cells=CELLS[4:], starts=(3, 4, 5), rounds=1)
    return before + after


def test_resumed_runs_keep_the_spreads_apart() -> None:
    """Starts that cover only a part of the cells neither hide their luck nor pass it on as scatter."""
    noises = [estimate_noise(collect(_interrupted(np.random.default_rng(seed), 0.05, 0.01))) for seed in range(60)]
    assert np.sqrt(np.mean([n.within_start**2 for n in noises])) == pytest.approx(0.01, rel=0.15)
    assert np.sqrt(np.mean([n.between_starts**2 for n in noises])) == pytest.approx(0.05, rel=0.35)


def test_resumed_runs_know_which_cells_shared_an_engine() -> None:
    """Where a resume parted the cells between engines, the interval of their difference holds the truth still."""
    held = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        drawn = _drawn(_interrupted(rng, 0.05, 0.01), rng)
        held.append(_holds(drawn[2, 0] - drawn[0, 0], _log_truth()[2, 0] - _log_truth()[0, 0]))
    assert np.mean(held) > 0.88


def test_cells_without_blocks_are_not_claimed() -> None:
    """A cell that was not measured is nan, and its neighbours are as sure as ever."""
    rng = np.random.default_rng(6)
    drawn = _drawn(_blocks(rng, start_sd=0.02, within_sd=0.01, cells=CELLS[:-1]), rng)
    assert np.isnan(drawn.point[2, 2])
    assert np.isnan(drawn.draws[:, 2, 2]).all()
    assert np.isfinite(drawn.draws).sum() == drawn.draws.size - len(drawn.draws)


def test_silence_has_no_interval() -> None:
    """Blocks without any noise give the truth, as exactly as numbers go."""
    rng = np.random.default_rng(7)
    drawn = _drawn(_blocks(rng, start_sd=0.0, within_sd=0.0), rng)
    np.testing.assert_allclose(drawn.draws, np.broadcast_to(_log_truth(), drawn.draws.shape), atol=1e-4)
