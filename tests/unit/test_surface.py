from itertools import pairwise

import numpy as np
import pytest
from builders import a_surface
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.surface import Surface, spread
from dsd_tune.records.measurement import Arm, Cell

ANCHORS = (2, 4, 16)


def _exact(values: list[float] | Array) -> Sampled:
    point = np.asarray(values, dtype=float)
    return Sampled(point, np.stack([point, point + 1]))


anchors = st.sets(st.integers(1, 64), min_size=1, max_size=6).map(lambda sizes: tuple(sorted(sizes)))


@given(anchors, st.data())
def test_anchors_are_read_off_exactly(sizes: tuple[int, ...], data: st.DataObject) -> None:
    """At a measured batch size the spread line is the measured value to the last bit."""
    values = [data.draw(st.floats(-10, 10)) for _ in sizes]
    line = spread(_exact(values), sizes, 64)
    assert [line.point[size - 1] for size in sizes] == values
    assert [line.draws[1, size - 1] for size in sizes] == [value + 1 for value in values]


@given(anchors)
def test_nothing_is_claimed_outside_the_anchors(sizes: tuple[int, ...]) -> None:
    """Below the smallest and above the largest measured batch size there is no value."""
    line = spread(_exact([0.0] * len(sizes)), sizes, 64)
    inside = np.zeros(64, dtype=bool)
    inside[sizes[0] - 1 : sizes[-1]] = True
    np.testing.assert_array_equal(np.isfinite(line.point), inside)
    np.testing.assert_array_equal(np.isfinite(line.draws).all(axis=0), inside)


def test_nothing_is_claimed_beside_a_missing_cell() -> None:
    """Between a measured and a missing cell there is no value, and the measured one stays."""
    line = spread(_exact([1.0, np.nan, 3.0]), ANCHORS, 16)
    assert np.flatnonzero(np.isfinite(line.point)).tolist() == [1, 15]


def test_neighbours_are_joined_linearly_in_log_batch_size() -> None:
    """The geometric mean of two anchors gets the mean of their values."""
    line = spread(_exact([1.0, 2.0, 6.0]), ANCHORS, 16)
    assert line.point[8 - 1] == pytest.approx(4.0)
    assert all(low <= high for low, high in pairwise(line.point[1:]))


def test_each_k_is_spread_by_itself() -> None:
    """A second axis is carried along, so that a K that failed somewhere leaves the others alone."""
    grid = _exact(np.array([[1.0, 1.0], [1.0, np.nan], [1.0, 1.0]]))
    line = spread(grid, ANCHORS, 16)
    assert np.isfinite(line.point[1:, 0]).all()
    assert np.isfinite(line.point[:, 1]).sum() == 2


def test_fixed_k_is_read_off_its_own_engine_where_measured() -> None:
    """A fixed K that ran in an engine of its own is judged by that engine, another by the table's."""
    surface = a_surface(SimulatedEngine())
    ratio = Sampled(np.full(6, 0.5), np.full((1000, 6), 0.5))
    surface.static[2] = ratio
    expected = surface.no_spec.point + 0.5 - surface.log_tokens.point[2]
    np.testing.assert_allclose(surface.fixed_tpot(2).point, expected)
    np.testing.assert_array_equal(surface.fixed_tpot(1).point, surface.table_tpot().point[:, 1])


def test_table_tpot_joins_cost_and_acceptance() -> None:
    """Without noise the surface's TPOT is the engine's true one."""
    engine = SimulatedEngine()
    surface = a_surface(engine)
    np.testing.assert_allclose(
        np.exp(surface.table_tpot().point),
        [[engine.true_step_s(c) / engine.true_tokens_per_step(c.k) for c in row] for row in _cells(surface)],
    )


def _cells(surface: Surface) -> list[list[Cell]]:
    return [[Cell(Arm.DSD, b, k) for k in surface.ks] for b in surface.batch_sizes]
