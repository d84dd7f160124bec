from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import a_profile
from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.model import timing
from dsd_tune.model.limits import limit
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import Comparison, Decision, Limit, Source
from dsd_tune.records.table import Table

LAW = CostLaw(critical_tokens=12, slope_s=0.0012)
QUIET = {"start_sd": 0.001, "drift_per_hour": 0.0, "step_sd": 0.004, "outlier_share": 0.0}


def _fit(rounds: int = 2, alive_together: int = 8, concentration: float = 1e6, **noise: float) -> Fit:
    engine = SimulatedEngine(
        LAW,
        (0.7, 0.6),
        noise=Noise(**{**QUIET, **noise}, prompt_concentration=concentration),
        max_num_seqs=16,
        alive_together=alive_together,
    )
    shelf = swept(engine, starts=3, rounds=rounds, steps=16)
    return Fit(shelf.manifest, shelf.samples())


def _decision(**gains: Any) -> Decision:
    told = Comparison(0.3, 0.29, 0.31, 0.01)
    everything = {"table_gain": told, "fixed_gain": told, "table_over_fixed": told, **gains}
    return replace(a_profile().decision, table=Table.from_dense([2] * 4 + [1] * 12), fixed_k=1, **everything)


def _limit(fit: Fit, **gains: Any) -> Limit | None:
    timings = timing.collect(fit.blocks)
    return limit(_decision(**gains), fit.surface, timings, timing.estimate_noise(timings))


CLOSE = Comparison(0.012, -0.01, 0.03, 0.03)


def test_the_closest_call_is_named() -> None:
    """The comparison nearest to where a verdict changes, in what is detectable, is named."""
    fit = _fit()
    names = {name: _limit(fit, **{name: CLOSE}).comparison for name in ("table_gain", "fixed_gain", "table_over_fixed")}
    assert names == {
        "table_gain": "the table over no speculation",
        "fixed_gain": "the fixed K over no speculation",
        "table_over_fixed": "the table over the fixed K",
    }


def test_luck_of_starts_limits_what_is_between_engines() -> None:
    """Where starts differ most they limit a gain over no speculation, and not one within an engine."""
    fit = _fit(start_sd=0.05)
    assert _limit(fit, table_gain=CLOSE).source is Source.STARTS
    assert _limit(fit, table_over_fixed=CLOSE).source is not Source.STARTS


def test_scatter_of_blocks_limits_what_is_within_an_engine() -> None:
    """Where blocks scatter most they limit the comparison of two Ks."""
    assert _limit(_fit(step_sd=0.1), table_over_fixed=CLOSE).source is Source.BLOCKS


def test_luck_of_the_text_limits_what_rests_on_acceptance() -> None:
    """Where prompts differ most, a gain over no speculation is limited by how many there were."""
    assert _limit(_fit(concentration=2), fixed_gain=CLOSE).source is Source.TEXT


def test_nothing_compared_has_no_limit() -> None:
    """Without a comparison, or where none is uncertain, nothing limits the verdict."""
    fit = _fit()
    assert _limit(fit, table_gain=None, fixed_gain=None, table_over_fixed=None) is None
    sure = Comparison(0.1, 0.1, 0.1, 0.0)
    assert _limit(fit, table_gain=sure, fixed_gain=sure, table_over_fixed=sure) is None


@pytest.mark.parametrize("together", [8, 1])
def test_parts_make_up_the_whole(together: int) -> None:
    """The deviations by source add up, squared, to that of the estimate's own draws."""
    fit = _fit(alive_together=together, start_sd=0.01, step_sd=0.05)
    timings = timing.collect(fit.blocks)
    noise = timing.estimate_noise(timings)
    left, right = Cell(Arm.DSD, 4, 1), Cell(Arm.NO_SPEC, 4, 0)
    parts = timing.uncertainty(timings, noise, {left: 1.0, right: -1.0})
    times = timing.draw_cells(timings, noise, np.random.default_rng(0)).grid([[left, right]])
    low, high = (times[0, 0] - times[0, 1]).limits(0.68)
    assert np.sqrt(sum(part**2 for part in parts.values())) == pytest.approx((high - low) / 2, rel=0.3)
