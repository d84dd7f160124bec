from dataclasses import replace

import numpy as np
import pytest

from dsd_tune.model.claims import claim, neighbours, regret_of
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.measurement import Arm, Cell

SIZES = (16, 32, 64, 128)


def _exact(values: list[list[float]]) -> Sampled:
    point = np.log(np.array(values, dtype=float))
    return Sampled(point, np.broadcast_to(point, (4, *point.shape)))


def _surface(*steps: list[float], batch_sizes: tuple[int, ...] = SIZES) -> Surface:
    """A surface of K=0, 1, ... with these step times in ms, one list a K; AL is 1 throughout."""
    dsd = _exact([list(row) for row in zip(*steps, strict=True)])
    zero = np.zeros(len(steps))
    tokens = Sampled(zero, np.zeros((4, len(steps))))
    return Surface(batch_sizes, tuple(range(len(steps))), dsd[:, 0], dsd, tokens, {})


CALM = [10.0, 11.0, 12.0, 14.0]


def test_even_growth_is_read_off_in_between() -> None:
    """Where step time grows less than batch size does, everything between two measured sizes is claimed."""
    assert np.isfinite(claim(_surface(CALM, CALM), 128, None).log_tpot.point[15:]).all()


def test_nothing_is_claimed_across_a_jump() -> None:
    """A K whose step time more than doubles while batch size doubles is claimed at both ends and not between."""
    claims = claim(_surface(CALM, [6, 6.5, 7, 25]), 128, None)
    claimed = np.isfinite(claims.log_tpot.point[:, 1])
    assert claimed[[15, 31, 63, 127]].all()
    assert not claimed[64:127].any()
    assert [(gap.k, gap.left, gap.right) for gap in claims.gaps] == [(1, 64, 128)]


def test_a_cell_that_was_filled_in_hides_no_jump() -> None:
    """A jump between two measured sizes stays one, though a size between them holds what was read off."""
    surface = replace(_surface(CALM, [6, 9, 15, 22]), filled=frozenset({Cell(Arm.DSD, 64, 1), Cell(Arm.DSD, 32, 1)}))
    assert [(gap.k, gap.left, gap.right) for gap in claim(surface, 128, None).gaps] == []
    surface = replace(surface, dsd=_exact([[10, 6], [11, 13], [12, 29], [14, 62]]))
    assert [(gap.k, gap.left, gap.right) for gap in claim(surface, 128, None).gaps] == [(1, 16, 128)]


def test_growth_in_proportion_is_no_jump() -> None:
    """A large batch is bound by arithmetic: twice the requests take twice the time, noise included."""
    assert claim(_surface(CALM, [10, 20.5, 41, 84]), 128, None).gaps == ()


def test_a_known_limit_is_reached_and_not_passed() -> None:
    """Up to the last batch size within the limit the growth before goes on; from there to the next cell is nothing."""
    claims = claim(_surface(CALM, [6, 6.5, 7, 25]), 128, capture_limit=180)
    column = claims.log_tpot.point[:, 1]
    assert np.isfinite(column[:90]).sum() == 90 - 15
    assert np.isnan(column[90:127]).all()
    assert np.exp(column[89]) == pytest.approx(7 * (7 / 6.5) ** np.log2(90 / 64))


def test_a_limit_that_the_grid_keeps_changes_nothing() -> None:
    """Where no K crosses the limit all is read off as before."""
    surface = _surface(CALM, CALM)
    with_limit, without = (claim(surface, 128, limit).log_tpot.point for limit in (512, None))
    np.testing.assert_array_equal(with_limit, without)


def test_a_limit_before_the_second_cell_foretells_nothing() -> None:
    """From a single cell within the limit no growth is known, so nothing is claimed past it."""
    column = claim(_surface(CALM, [6, 20, 30, 40]), 128, capture_limit=40).log_tpot.point[:, 1]
    assert np.isfinite(column[15])
    assert np.isnan(column[16:31]).all()


def test_what_is_least_wrong_on_either_side_reaches_across() -> None:
    """Where nothing is claimed between two sizes, the K with the smallest larger loss is the one to run."""
    cost = np.full((4, 2), np.nan)
    cost[0], cost[3] = np.log([1.0, 1.1]), np.log([1.5, 1.0])
    regret = regret_of(cost, np.zeros((4, 2)), (1, 4))
    np.testing.assert_allclose(regret[1:3], [[0.5, 0.1]] * 2)


def test_neighbours_of_a_batch_size() -> None:
    """A measured size is its own neighbour; one in between has two, one at either end has one."""
    assert [neighbours((4, 16), b) for b in (1, 4, 9, 16, 20)] == [(4,), (4,), (4, 16), (16,), (16,)]
