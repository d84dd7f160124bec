"""From published numbers to a surface and its caveats."""

from typing import Any

import numpy as np
import pytest

from dsd_tune.errors import UsageError
from dsd_tune.model.caveats import caveats
from dsd_tune.model.published import missing_cells, pooled_lengths, surface_from_published
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.published import Published, PublishedAcceptance, PublishedRow
from dsd_tune.records.table import Table
from dsd_tune.solve import decide


def accepted(k: int, length: float, drafts: int | None = None) -> PublishedAcceptance:
    """Acceptance at K without rates."""
    return PublishedAcceptance(k, length, (), drafts, "somewhere")


def row(batch_size: int, k: int, tpot_ms: float, length: float | None = None, arm: Arm | None = None) -> PublishedRow:
    """A row of a fixed-K engine, or of none at K=0; its step time follows from its own acceptance length."""
    arm = arm or (Arm.STATIC if k else Arm.NO_SPEC)
    known = 1.0 if k == 0 else length
    step_s = tpot_ms / 1e3 * known if known else None
    return PublishedRow(
        Cell(arm, batch_size, k), step_s, tpot_ms / 1e3, accepted(k, length) if length else None, "here"
    )


def published(*rows: PublishedRow, **changed: Any) -> Published:
    """An import of rows."""
    fields = {"acceptance": (), "facts": (), "cell_sd": 0.02, "start_sd": 0.02, "remarks": ()} | changed
    return Published(rows, **fields, created_at_s=1.0, dsd_tune_version="0.1.0")


def surface(*rows: PublishedRow, **changed: Any) -> Surface:
    """The surface of rows, from one seed."""
    return surface_from_published(published(*rows, **changed), np.random.default_rng(1))


def tpot_ms(log_tpot: Sampled) -> list[float]:
    """TPOT in ms."""
    return [float(value) for value in np.exp(log_tpot.point) * 1e3]


def spread_of(log_value: Sampled) -> float:
    """Standard deviation of the draws of one number."""
    return float(np.std(log_value.draws))


def test_luck_at_one_batch_size_is_pooled_away() -> None:
    """Two runs of one cell with unlike text but like step times end with TPOTs as alike as their step times."""
    lucky, unlucky = row(1, 5, 3.38, 5.85), row(1, 5, 4.33, 4.51)
    rest = [row(b, 5, 4.0, 5.2) for b in (8, 16, 32)]
    first, second = (surface(run, *rest).table_tpot()[0, 0] for run in (lucky, unlucky))
    assert first.point == pytest.approx(second.point, abs=0.05)
    assert np.log(lucky.tpot_s or 1) - np.log(unlucky.tpot_s or 1) == pytest.approx(-0.25, abs=0.01)


def test_pooled_length_is_tokens_over_steps() -> None:
    """Counted drafts weigh by their number; without counts requests of equal length weigh by their steps."""
    counted = published(row(1, 0, 5), acceptance=(accepted(3, 3.0, 100), accepted(3, 2.0, 300)))
    assert pooled_lengths(counted) == {3: pytest.approx(2.25)}
    by_size = published(row(1, 3, 5, 3.0), row(3, 3, 5, 2.0))
    assert pooled_lengths(by_size) == {3: pytest.approx(4 / (1 / 3 + 3 / 2))}


def test_unknown_acceptance_leaves_tpot_as_printed() -> None:
    """A K without acceptance keeps its TPOT, so Ks with and without it compare on the same scale."""
    found = surface(row(8, 0, 10), row(8, 1, 7), row(8, 2, 6, 2.4))
    assert tpot_ms(found.table_tpot()[0]) == pytest.approx([10, 7, 6])


def test_acceptance_from_elsewhere_splits_tpot() -> None:
    """TPOT joined with acceptance of another file yields a step time, and the same TPOT."""
    found = surface(row(8, 2, 6), acceptance=(accepted(2, 2.5),))
    assert float(np.exp(found.dsd.point[0, 0])) == pytest.approx(0.015)
    assert tpot_ms(found.table_tpot()[0]) == pytest.approx([6])


def test_step_time_of_random_text_needs_real_acceptance() -> None:
    """A step time alone is refused, and with acceptance on real prompts it becomes TPOT."""
    timed = PublishedRow(Cell(Arm.STATIC, 8, 2), 0.015, None, None, "random.json")
    with pytest.raises(UsageError, match="acceptance at K=2 is not known"):
        surface(timed)
    assert tpot_ms(surface(timed, acceptance=(accepted(2, 2.5),)).table_tpot()[0]) == pytest.approx([6])


def test_acceptance_alone_has_no_surface() -> None:
    """An import without times is refused."""
    with pytest.raises(UsageError, match="no times"):
        surface(acceptance=(accepted(2, 2.5),))


def test_luck_widens_what_is_not_pooled() -> None:
    """Where lengths scatter, a K without one is less certain, and least at small batches."""
    scattered = [row(b, 5, 4, length) for b, length in ((1, 5.9), (4, 4.8), (16, 5.3), (64, 5.2), (256, 5.3))]
    found = surface(*scattered, *(row(b, 1, 8) for b in (1, 4, 16, 64, 256)))
    unknown, pooled = (found.table_tpot()[:, k] for k in (0, 1))
    assert spread_of(unknown[0]) > 2 * spread_of(pooled[0])
    assert spread_of(unknown[0]) > 2 * spread_of(unknown[4])


def test_engine_effect_is_shared_by_its_numbers() -> None:
    """Numbers of one fixed-K engine err together; those of two engines do not."""
    rows = [row(b, k, 5, 1 + k / 2) for b in (1, 8) for k in (1, 2)]
    draws = surface(*rows, cell_sd=0.001, start_sd=0.05).dsd.draws
    within = np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]
    between = np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1]
    assert within > 0.95
    assert abs(between) < 0.15


def test_numbers_of_a_table_engine_share_one_effect() -> None:
    """All Ks of one engine with a table err together, so their differences are sharper."""
    rows = [row(1, k, 5, 1 + k / 2, Arm.DSD) for k in (1, 2)]
    draws = surface(*rows, cell_sd=0.001, start_sd=0.05).dsd.draws
    assert np.corrcoef(draws[:, 0, 0], draws[:, 0, 1])[0, 1] > 0.95


def test_repeats_replace_the_assumption() -> None:
    """Repeated rows are averaged, and their scatter is used instead of the assumed deviation."""
    noisy = [row(1, 0, t) for t in (8, 9, 10, 11, 12.5)]
    found = surface(*noisy, start_sd=0.001)
    assert tpot_ms(found.no_spec) == pytest.approx([10], rel=0.01)
    assert spread_of(found.no_spec[0]) > 2 * 0.02


def test_table_k0_is_no_speculation_unless_measured() -> None:
    """Without a K=0 row of the table's engine both have the same draws, so that no gain is found between them."""
    found = surface(row(1, 0, 10), row(1, 1, 8, 1.6))
    assert np.array_equal(found.dsd.draws[:, 0, 0], found.no_spec.draws[:, 0])
    taxed = surface(row(1, 0, 10), row(1, 0, 11, arm=Arm.DSD), row(1, 1, 8, 1.6, Arm.DSD))
    assert taxed.dsd.point[0, 0] - taxed.no_spec.point[0] == pytest.approx(np.log(1.1))


def test_both_speculative_arms_stay_apart() -> None:
    """Where a fixed K was measured beside the table's engine, it is a ratio to no speculation."""
    found = surface(row(1, 0, 10), row(1, 2, 6, 2.0, Arm.DSD), row(1, 2, 5, 2.0, Arm.STATIC))
    assert tpot_ms(found.table_tpot()[0])[1] == pytest.approx(6)
    assert tpot_ms(found.fixed_tpot(2)) == pytest.approx([5])


def test_missing_cells_stay_missing() -> None:
    """A cell without a row is nan on the surface and is listed."""
    found = published(row(1, 0, 10), row(1, 1, 8), row(4, 0, 11))
    assert missing_cells(found) == ((4, 1),)
    assert np.isnan(surface_from_published(found, np.random.default_rng(1)).dsd.point[1, 1])


def test_off_untested_has_no_baseline() -> None:
    """Without rows at K=0 no gain over no speculation can be read off the surface."""
    assert np.isnan(surface(row(1, 1, 8), row(1, 2, 7)).no_spec.point).all()


def test_decision_on_a_surface_of_others() -> None:
    """A grid whose best K falls with batch size is decided as a table, and a flat one is not."""
    falling = [(1, 0, 10), (1, 3, 5), (8, 0, 10), (8, 3, 6), (64, 0, 10), (64, 3, 20)]
    assert decide(surface(*(row(*cell) for cell in falling)), 64).table.k_at(64) == 0
    flat = [(b, k, t) for b in (1, 8, 64) for k, t in ((0, 10), (3, 5))]
    assert decide(surface(*(row(*cell) for cell in flat)), 64).table == Table.from_dense([3] * 64)


def test_complete_grid_with_both_arms_keeps_its_assumptions() -> None:
    """With off and the table's engine measured, only deviations and the meaning of bare lengths are assumed."""
    rows = [row(b, k, 10 - k, 1 + k / 2 if k else None, Arm.DSD) for b in (1, 8) for k in (0, 1, 2)]
    said = caveats(published(*rows, row(1, 0, 9), row(8, 0, 9)))
    assert len(said) == 3
    assert "no cell was repeated: 2% is assumed" in said[0]
    assert "without counts of drafts" in said[1]
    assert "too few rows to tell its luck" in said[2]
