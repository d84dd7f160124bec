"""Comparing arms by loads of real servers: the start is the unit, the pass a block."""

import numpy as np
import pytest
from builders import a_load

from dsd_tune.model.served import SAME, compare, judge, measured, prefill_s
from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ArmComparison, Load, ServedArm

OFF, FIXED, TABLE = ServedArm.NO_SPEC, ServedArm.FIXED, ServedArm.TABLE


def _loads(
    times: dict[ServedArm, float],
    *,
    starts: int = 3,
    levels: tuple[int, ...] = (1, 4),
    luck: float = 0.0,
    seed: int = 0,
) -> list[Load]:
    """Loads whose TPOT is an arm's own times the luck of its start, and slower with every pass."""
    random = np.random.default_rng(seed)
    return [
        a_load(arm=arm, start=start, concurrency=c, tpot_s=time * 1.1**start * float(np.exp(shift)))
        for start in range(starts)
        for arm, time in times.items()
        for shift in [luck * random.standard_normal()]
        for c in levels
    ]


def _overall(loads: list[Load], arm: ServedArm = TABLE, against: ServedArm = OFF) -> ArmComparison:
    return next(c for c in compare(loads, against) if c.overall and c.arm is arm)


def test_drift_shared_by_a_pass_is_no_difference_between_arms() -> None:
    """Passes that are each a tenth slower than the last leave the arms' ratio exact."""
    found = _overall(_loads({OFF: 0.04, TABLE: 0.03}))
    assert found.tpot.value == pytest.approx(0.25)
    assert found.tpot.high - found.tpot.low < 1e-6
    assert found.said is Said.BETTER


def test_every_concurrency_is_compared_and_all_together() -> None:
    """Two concurrencies give three comparisons of each arm, one concurrency gives one."""
    assert [c.concurrency for c in compare(_loads({OFF: 0.04, TABLE: 0.03}), OFF)] == [None, 1, 4]
    assert [c.concurrency for c in compare(_loads({OFF: 0.04, TABLE: 0.03}, levels=(8,)), OFF)] == [None]


def test_intervals_cover_the_truth() -> None:
    """Of 200 comparisons of equal arms with lucky starts, 92 to 98 % cover 0."""
    found = [_overall(_loads({OFF: 0.04, FIXED: 0.04, TABLE: 0.04}, luck=0.05, seed=s)).tpot for s in range(200)]
    assert 0.92 <= np.mean([f.low <= 0 <= f.high for f in found]) <= 0.98


def test_a_single_start_proves_nothing() -> None:
    """After one pass nothing is detectable, and no difference is claimed."""
    found = _overall(_loads({OFF: 0.04, TABLE: 0.02}, starts=1))
    assert found.detectable is None
    assert found.said is Said.UNCLEAR


def test_the_detectable_difference_is_seen_four_times_in_five() -> None:
    """Arms that differ by what is said to be detectable are told apart in 70 to 90 of 100 trials."""
    plan = {"starts": 10, "luck": 0.03}
    typical = float(
        np.median([_overall(_loads({OFF: 0.04, TABLE: 0.04}, **plan, seed=s)).detectable for s in range(100)])
    )
    faster = {OFF: 0.04, TABLE: 0.04 * (1 - typical)}
    seen = [_overall(_loads(faster, **plan, seed=1000 + s)).said is Said.BETTER for s in range(100)]
    assert 0.7 <= np.mean(seen) <= 0.9


def test_a_pass_that_is_not_complete_is_left_out() -> None:
    """A start that was killed after its first load counts for no comparison."""
    loads = [*_loads({OFF: 0.04, TABLE: 0.03}), a_load(arm=TABLE, start=3, concurrency=1, tpot_s=9.0)]
    assert _overall(loads).tpot.value == pytest.approx(0.25)


def test_arms_that_never_met_are_not_compared() -> None:
    """Without a load of the other arm there is no comparison."""
    assert list(compare(_loads({TABLE: 0.03}), OFF)) == []


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-SAME, SAME, Said.SAME),
        (0.001, 0.01, Said.SAME),
        (0.01, 0.05, Said.BETTER),
        (-0.05, -0.01, Said.WORSE),
        (-0.05, 0.05, Said.UNCLEAR),
    ],
)
def test_one_of_four_words_is_said(low: float, high: float, said: Said) -> None:
    """Within 2 % is the same, beyond 0 better or worse, and anything wider cannot be told."""
    assert judge(Interval((low + high) / 2, low, high)) is said


def test_a_measured_tpot_has_the_interval_of_its_starts() -> None:
    """Starts 10 % apart give an interval of more than 10 %."""
    found = measured(_loads({OFF: 0.04}), OFF, 1)
    assert found.value == pytest.approx(0.044)
    assert found.high / found.low > 1.1


PROMPTS = (90, 40, 50, 60, 30, 35, 45, 55)


def _waiting(concurrency: int, token_s: float, arm: ServedArm = OFF) -> Load:
    """Clients whose first prompts share a step, and whose others come alone; the first is in the cache."""
    first, later = PROMPTS[1:concurrency], PROMPTS[max(1, concurrency) :]
    waits_s = token_s * (concurrency * sum(first) + sum(later))
    return a_load(arm=arm, concurrency=concurrency, tpot_s=0.04, ttft_s=0.04 + waits_s / 8, input_lens=PROMPTS)


@pytest.mark.parametrize("concurrency", [1, 4, 8])
def test_a_token_of_a_prompt_costs_what_the_first_token_waits_for(concurrency: int) -> None:
    """A client alone waits for its own prompt, clients that begin together for each other's, and no step is one."""
    assert prefill_s([_waiting(concurrency, 0.001)]) == pytest.approx(0.001)


def test_the_cost_of_prompts_is_that_of_the_thinnest_loads() -> None:
    """Without speculation if there are such; a start that stalled, and loads of old files, tell nothing."""
    thin = [_waiting(4, 0.001), _waiting(4, 0.001), _waiting(4, 0.1)]
    others = [_waiting(8, 0.002), _waiting(1, 0.003, TABLE), a_load(ttft_s=9.0)]
    assert prefill_s([*thin, *others]) == pytest.approx(0.001)
    assert prefill_s([_waiting(4, 0.004, TABLE), a_load(ttft_s=9.0)]) == pytest.approx(0.004)


def test_prompts_that_nobody_measured_cost_nothing() -> None:
    """Old files have no lengths, and a first token that comes sooner than a step is luck."""
    assert prefill_s([a_load(ttft_s=9.0)]) == 0
    assert prefill_s([a_load(input_lens=PROMPTS, tpot_s=0.05, ttft_s=0.04)]) == 0
