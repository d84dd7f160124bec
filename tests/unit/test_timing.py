from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planting import BOTH, CELLS, GRID, OFF, drawn_from, holds, log_truth, one_block, planted, width

from dsd_tune.model.timing import UNKNOWN_DRIFT_SD, collect, draw_cells, estimate_noise
from dsd_tune.records.measurement import Block


def _spreads(seeds: int, run: Callable[[np.random.Generator], list[Block]]) -> tuple[float, float, float]:
    """Root mean squares, over many runs, of what starts, drift and blocks were estimated at."""
    noises = [estimate_noise(collect(run(np.random.default_rng(seed)))) for seed in range(seeds)]
    starts, drift, blocks = np.sqrt(np.mean([[s.sd**2 for s in (n.starts, n.drift, n.blocks)] for n in noises], axis=0))
    return float(starts), float(drift), float(blocks)


@pytest.mark.parametrize(
    ("start_sd", "drift_sd", "block_sd"),
    [(0.05, 0.02, 0.01), (0.02, 0.05, 0.01), (0.02, 0.02, 0.03), (0.03, 0.1, 0.02)],
)
def test_luck_drift_and_scatter_are_told_apart(start_sd: float, drift_sd: float, block_sd: float) -> None:
    """Over many runs all three spreads come back as they were planted, whichever is the largest."""
    starts, drift, blocks = _spreads(
        60, lambda rng: planted(rng, start_sd=start_sd, drift_sd=drift_sd, block_sd=block_sd, cells=BOTH)
    )
    assert blocks == pytest.approx(block_sd, rel=0.1)
    assert starts == pytest.approx(start_sd, rel=0.35)
    assert drift == pytest.approx(drift_sd, rel=0.35)


@pytest.mark.parametrize("alive_together", [1, 2])
def test_engines_that_live_apart_are_told_apart(alive_together: int) -> None:
    """Where starts have visits of their own their luck is not assumed: it comes back, with a part of the drift."""
    starts, drift, _ = _spreads(
        60,
        lambda rng: planted(
            rng, start_sd=0.03, drift_sd=0.01, block_sd=0.005, cells=BOTH, alive_together=alive_together
        ),
    )
    assert starts == pytest.approx(0.03, rel=0.35)
    assert drift == pytest.approx(0.01, rel=0.35)


@pytest.mark.parametrize(
    ("drift_sd", "round_sd", "block_sd"), [(0.05, 0.05, 0.02), (0.0, 0.1, 0.05), (0.05, 0.0, 0.02)]
)
def test_slow_rounds_are_told_from_drift_and_scatter(drift_sd: float, round_sd: float, block_sd: float) -> None:
    """Over many runs with two rounds a visit, what a round shares comes back apart from visits and single blocks."""
    runs = [
        planted(
            np.random.default_rng(seed),
            start_sd=0.01,
            drift_sd=drift_sd,
            round_sd=round_sd,
            block_sd=block_sd,
            cells=BOTH,
            rounds=2,
        )
        for seed in range(60)
    ]
    noises = [estimate_noise(collect(run)) for run in runs]
    blocks, rounds, drift = (
        float(np.sqrt(np.mean([getattr(noise, name).sd ** 2 for noise in noises])))
        for name in ("blocks", "rounds", "drift")
    )
    assert blocks == pytest.approx(block_sd, rel=0.1)
    assert rounds == pytest.approx(round_sd, rel=0.35, abs=block_sd / 4)
    assert drift == pytest.approx(drift_sd, rel=0.35, abs=round_sd / 2)


def test_slow_rounds_spare_differences() -> None:
    """Where the machine has two speeds for seconds at a time, Ks of one engine are told apart as on a steady one.

    Nineteen in twenty intervals hold the truth, and they are half as wide as if each block were slow by itself.
    """
    truth = (log_truth()[:, 1:] - log_truth()[:, :1]).ravel()
    held, narrower = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        blocks = planted(rng, start_sd=0.005, round_sd=0.15, block_sd=0.03, cells=BOTH, rounds=2)
        times = drawn_from(blocks, rng)
        difference = times[:, 1:] - times[:, :1]
        held.append(holds(difference, truth.reshape(3, 2)).mean())
        apart = drawn_from([replace(block, round=0) for block in blocks], rng)
        narrower.append(width(difference) / width(apart[:, 1:] - apart[:, :1]))
    assert 0.92 < np.mean(held) < 0.99
    assert np.median(narrower) < 0.5


def test_drift_between_visits_spares_differences() -> None:
    """When the machine drifts by 10 %, arms alive together still differ by what they differ by, within a few percent.

    Absolute times are several times less sure, and nineteen in twenty intervals of the difference hold the truth.
    """
    truth = (log_truth() - log_truth(OFF)).ravel()
    held, narrower = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        timings = collect(planted(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.02, cells=BOTH))
        times = draw_cells(timings, estimate_noise(timings), rng)
        off = times.grid([row * 3 for row in OFF])
        difference = times.grid(GRID) - off
        held.append(holds(difference, truth.reshape(3, 3)).mean())
        narrower.append(width(difference) / width(off))
    assert 0.92 < np.mean(held) < 0.99
    assert np.median(narrower) < 0.3


def test_a_missed_visit_does_not_let_drift_in() -> None:
    """A cell that failed in one round is compared through the visits that it shared, not through the other one."""
    failed = GRID[1][2]
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        blocks = planted(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.005, cells=BOTH)
        drawn = drawn_from([b for b in blocks if (b.cell, b.repetition) != (failed, 0)], rng)
        errors.append((drawn.point - log_truth())[1, 2] - (drawn.point - log_truth())[1, 1])
    assert np.sqrt(np.mean(np.square(errors))) < 0.015


def _arms(alive_together: int) -> float:
    """How much surer the arms' difference at one batch size is than the absolute time, under strong drift."""
    rng = np.random.default_rng(8)
    blocks = planted(rng, start_sd=0.005, drift_sd=0.1, block_sd=0.01, cells=BOTH, alive_together=alive_together)
    timings = collect(blocks)
    times = draw_cells(timings, estimate_noise(timings), rng)
    return width((times.grid(GRID) - times.grid(OFF))[:, 0]) / width(times.grid(OFF))


def test_arms_that_live_apart_do_not_share_drift() -> None:
    """Drift leaves the difference of two arms alone only where they were alive together."""
    assert _arms(alive_together=99) < 0.4
    assert _arms(alive_together=2) < 0.4
    assert _arms(alive_together=1) > 1.1


def test_one_round_alive_together_cannot_tell_drift() -> None:
    """With each batch size visited once, drift is assumed, and absolute times are as wide as that."""
    rng = np.random.default_rng(9)
    blocks = planted(rng, block_sd=0.001, cells=BOTH, repetitions=1)
    assert estimate_noise(collect(blocks)).drift.sd == UNKNOWN_DRIFT_SD
    assert width(drawn_from(blocks, rng)) > 3 * UNKNOWN_DRIFT_SD


def test_a_visit_is_what_its_blocks_say() -> None:
    """Blocks of one stop and repetition share a visit, its reference cell at another batch size too."""
    cell, other = CELLS[3], CELLS[0]
    stays = [(cell, 4, 0), (cell, 4, 0), (other, 4, 0), (other, 1, 0), (cell, 4, 1)]
    blocks = [replace(one_block(c, 0, 0.02), stop=stop, repetition=r, round=i) for i, (c, stop, r) in enumerate(stays)]
    np.testing.assert_array_equal(collect(blocks).of_visit.argmax(1), [0, 0, 0, 1, 2])


def test_workers_that_measure_at_once_do_not_mix_visits() -> None:
    """Blocks of two visits that alternate in time, since two workers took them, are two visits."""
    blocks = [replace(one_block(CELLS[0], i % 2, 0.02), repetition=i % 2) for i in range(4)]
    np.testing.assert_array_equal(collect(blocks).of_visit.argmax(1), [0, 1, 0, 1])


def test_a_round_has_the_reference_that_follows_it() -> None:
    """Blocks of one pass over a visit share a round; the reference cell at its end is taken with the last of them."""
    cell, other = CELLS[3], CELLS[0]
    taken = [(cell, 4, 0, 0), (cell, 4, 0, 1), (other, 4, 0, 2), (other, 1, 0, 0), (cell, 4, 1, 0), (other, 4, 1, 2)]
    blocks = [
        replace(one_block(c, 0, 0.02), stop=stop, repetition=repetition, round=round_)
        for c, stop, repetition, round_ in taken
    ]
    np.testing.assert_array_equal(collect(blocks).of_round.argmax(1), [0, 1, 1, 2, 3, 3])


def test_a_visit_does_not_outlive_its_engines() -> None:
    """Where a sweep was resumed, or engines took turns, blocks at one batch size in one round are still two visits."""
    before_and_after = [one_block(CELLS[0], start, 0.02) for start in (0, 1, 0, 2, 3, 2)]
    np.testing.assert_array_equal(collect(before_and_after).of_visit.argmax(1), [0, 0, 0, 1, 1, 1])
    one_restarted = [one_block(CELLS[0], start, 0.02) for start in (0, 1, 2, 1)]
    np.testing.assert_array_equal(collect(one_restarted).of_visit.argmax(1), [0, 1, 1, 1])


def test_degrees_of_freedom_count_starts_visits_and_blocks() -> None:
    """Two arms of three starts leave four degrees for luck, two rounds of three sizes three for drift."""
    blocks = planted(np.random.default_rng(0), start_sd=0.02, drift_sd=0.02, block_sd=0.01, cells=BOTH)
    noise = estimate_noise(collect(blocks))
    assert (noise.starts.df, noise.drift.df) == (4, 3)
    assert noise.blocks.df == len(blocks) - len(BOTH) - 4 - 3


def test_one_slow_step_does_not_move_a_block() -> None:
    """A block counts by the median of its steps."""
    calm = collect([one_block(CELLS[0], 0, 0.02, 0.02, 0.02)])
    shaken = collect([one_block(CELLS[0], 0, 0.02, 0.02, 0.9)])
    assert calm.values == shaken.values


def test_ks_of_one_engine_share_its_luck() -> None:
    """The difference of two Ks of one engine is far surer than either of them."""
    rng = np.random.default_rng(3)
    drawn = drawn_from(planted(rng, start_sd=0.06, block_sd=0.005), rng)
    assert width(drawn[:, 0] - drawn[:, 2]) < 0.3 * width(drawn[:, 0])


def test_arms_do_not_share_luck() -> None:
    """The difference of two arms is less sure than either of them."""
    rng = np.random.default_rng(4)
    timings = collect(planted(rng, start_sd=0.05, block_sd=0.005, cells=BOTH))
    times = draw_cells(timings, estimate_noise(timings), rng)
    dsd, off = times.grid(GRID)[:, 0], times.grid(OFF)[:, 0]
    assert width(dsd - off) > 1.2 * width(dsd)


@pytest.mark.parametrize("alive_together", [1, 2, 99])
def test_intervals_hold_the_truth(alive_together: int) -> None:
    """Nine in ten 95 % intervals or more hold the true step time, as do those of differences within an engine."""
    absolute, relative = [], []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        blocks = planted(rng, start_sd=0.03, drift_sd=0.02, block_sd=0.02, cells=BOTH, alive_together=alive_together)
        drawn = drawn_from(blocks, rng)
        absolute.append(holds(drawn, log_truth()).mean())
        relative.append(holds(drawn[:, 1] - drawn[:, 0], log_truth()[:, 1] - log_truth()[:, 0]).mean())
    assert np.mean(absolute) > 0.9
    assert np.mean(relative) > 0.9


def test_a_single_start_is_not_trusted() -> None:
    """With one start an arm, an interval is wider than engines of one kind were ever seen apart."""
    rng = np.random.default_rng(5)
    low, high = drawn_from(planted(rng, block_sd=0.001, cells=BOTH, starts=1), rng).limits()
    assert np.all(high - low > 0.3)


def _interrupted(rng: np.random.Generator, start_sd: float, block_sd: float) -> list[Block]:
    """Three starts that took the first cells twice, then died; three more that took the rest once."""
    before = planted(rng, start_sd=start_sd, block_sd=block_sd, cells=CELLS[:5], rounds=2)
    after = planted(rng, start_sd=start_sd, block_sd=block_sd, cells=CELLS[4:], first_start=6, rounds=1)
    return before + [replace(block, repetition=2) for block in after]


def test_resumed_runs_keep_the_spreads_apart() -> None:
    """Starts that cover only a part of the cells neither hide their luck nor pass it on as scatter."""
    starts, _, blocks = _spreads(60, lambda rng: _interrupted(rng, 0.05, 0.01))
    assert blocks == pytest.approx(0.01, rel=0.15)
    assert starts == pytest.approx(0.05, rel=0.35)


def test_resumed_runs_know_which_cells_shared_an_engine() -> None:
    """Where a resume parted the cells between engines, the interval of their difference holds the truth still."""
    held = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        drawn = drawn_from(_interrupted(rng, 0.05, 0.01), rng)
        held.append(holds(drawn[2, 0] - drawn[0, 0], log_truth()[2, 0] - log_truth()[0, 0]))
    assert np.mean(held) > 0.88


def test_cells_without_blocks_are_not_claimed() -> None:
    """A cell that was not measured is nan, and its neighbours are as sure as ever."""
    rng = np.random.default_rng(6)
    drawn = drawn_from(planted(rng, start_sd=0.02, block_sd=0.01, cells=CELLS[:-1]), rng)
    assert np.isnan(drawn.point[2, 2])
    assert np.isnan(drawn.draws[:, 2, 2]).all()
    assert np.isfinite(drawn.draws).sum() == drawn.draws.size - len(drawn.draws)


def test_silence_has_no_interval() -> None:
    """Blocks without any noise give the truth, as exactly as numbers go."""
    rng = np.random.default_rng(7)
    drawn = drawn_from(planted(rng, cells=BOTH), rng)
    np.testing.assert_allclose(drawn.draws, np.broadcast_to(log_truth(), drawn.draws.shape), atol=1e-4)
