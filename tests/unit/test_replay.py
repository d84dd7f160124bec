import tracemalloc
from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import pytest
from builders import a_surface
from queueing_truth import step_by_step

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.errors import UsageError
from dsd_tune.model.arrivals import poisson, rollout
from dsd_tune.model.choices import NO_SPECULATION, TABLE, choices, verified_tokens_per_s
from dsd_tune.model.recalled import with_acceptance
from dsd_tune.model.sampled import Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm
from dsd_tune.records.table import Table
from dsd_tune.records.trace import Request
from dsd_tune.replay import replay

ENGINE = SimulatedEngine(CostLaw(critical_tokens=8, slope_s=0.0008), (0.75, 0.55, 0.4, 0.3))
SMALL = Table.from_dense([4] * 4 + [2] * 6 + [1] * 10 + [0] * 12)
PREFILL = 5000.0


def _geometric(seed: int) -> Iterator[Request]:
    rng = np.random.default_rng(seed)
    for _ in count():
        yield Request(0.0, 100, int(rng.geometric(1 / 80)))


def _traffic(kind: str) -> list[Request]:
    if kind == "rollout":
        return list(rollout(_geometric(5), 48))
    return list(poisson(_geometric(5), {"light": 3.0, "busy": 9.0}[kind], 800))


@pytest.mark.parametrize("kind", ["light", "busy", "rollout"])
def test_forecast_is_what_a_simulation_token_by_token_says(kind: str) -> None:
    """Every arm's TPOT and completion time, and when a rollout is done, are within 4 % of drawing every token."""
    requests, known = _traffic(kind), choices(a_surface(ENGINE), 32, SMALL).known
    forecast = replay(known, requests, PREFILL)
    for arm, choice in zip(forecast.choices, known, strict=True):
        engine = Arm.NO_SPEC if arm.name == NO_SPECULATION else Arm.DSD
        truths = [
            step_by_step(ENGINE, requests, choice.ks, engine, 1 / PREFILL, seed)
            for seed in range(4 if kind == "rollout" else 1)
        ]
        assert arm.tpot_s is not None
        assert arm.tpot_s.mean.value == pytest.approx(np.mean([t.tpot_s.mean() for t in truths]), rel=0.04)
        assert arm.completion_s.mean.value == pytest.approx(np.mean([t.completion_s.mean() for t in truths]), rel=0.04)
        assert arm.finished_s.value == pytest.approx(np.mean([t.finished_s for t in truths]), rel=0.04)
        seconds = np.mean([t.seconds_at for t in truths], axis=0)
        assert np.cumsum(arm.seconds_at) == pytest.approx(np.cumsum(seconds), abs=0.05 * seconds.sum())


def test_the_best_arm_of_a_simulation_is_the_best_forecast() -> None:
    """Where arms differ by more than their intervals, their order is that of the truth."""
    requests = _traffic("busy")
    known = choices(a_surface(ENGINE, start_sd=0.005, within_sd=0.01), 32, SMALL).known
    forecast = replay(known, requests, PREFILL)
    truth = {
        choice.name: step_by_step(
            ENGINE, requests, choice.ks, Arm.NO_SPEC if choice.name == NO_SPECULATION else Arm.DSD, 1 / PREFILL
        ).tpot_s.mean()
        for choice in known
    }
    told = [arm for arm in forecast.choices if arm.against_no_spec and arm.against_no_spec.tpot]
    for arm in told:
        assert arm.against_no_spec is not None
        assert arm.against_no_spec.tpot is not None
        if arm.against_no_spec.tpot.said in (Said.BETTER, Said.WORSE):
            assert (arm.against_no_spec.tpot.said is Said.BETTER) == (truth[arm.name] < truth[NO_SPECULATION])
    assert any(arm.against_no_spec.tpot.said is Said.WORSE for arm in told if arm.against_no_spec.tpot)


def test_noise_widens_intervals_until_nobody_can_tell() -> None:
    """With exact cells the intervals are narrow; with 20 % of noise in every cell arms cannot be told apart."""
    requests = _traffic("rollout")
    exact, noisy = (
        replay(choices(a_surface(ENGINE, within_sd=sd, start_sd=sd), 32, None).known, requests, PREFILL)
        for sd in (0.001, 0.2)
    )
    for narrow, wide in zip(exact.choices[1:], noisy.choices[1:], strict=True):
        assert narrow.against_no_spec is not None
        assert wide.against_no_spec is not None
        assert wide.against_no_spec.completion.said is Said.UNCLEAR
        assert narrow.completion_s.mean.high - narrow.completion_s.mean.low < wide.completion_s.mean.high


def test_intervals_hold_the_truth_at_their_rate() -> None:
    """Over grids measured with noise, the interval of what the table saves holds what it truly saves 19 times in 20."""
    requests = _traffic("rollout")

    def saved(surface: Surface) -> Interval:
        known = choices(surface, 32, SMALL).known
        arm = replay([known[0], known[-1]], requests, PREFILL).choices[-1]
        assert arm.against_no_spec is not None
        return arm.against_no_spec.finished.ratio

    truth = saved(a_surface(ENGINE)).value
    found = [saved(a_surface(ENGINE, start_sd=0.02, within_sd=0.02, seed=seed)) for seed in range(25)]
    assert sum(interval.low <= truth <= interval.high for interval in found) >= 21


def test_what_arms_share_is_not_in_their_difference() -> None:
    """A machine that may be a tenth slower leaves times unsure, and the table's saving as sure as it was."""
    surface = a_surface(ENGINE, within_sd=0.002)
    level = np.random.default_rng(0).standard_normal((len(surface.no_spec.draws), 1)) * 0.1
    shifted = Surface(
        surface.batch_sizes,
        surface.ks,
        Sampled(surface.no_spec.point, surface.no_spec.draws + level),
        Sampled(surface.dsd.point, surface.dsd.draws + level[:, :, None]),
        surface.log_tokens,
        {},
    )
    arm = replay(choices(shifted, 32, SMALL).known, _traffic("rollout"), PREFILL).choices[-1]
    times, saved = arm.finished_s, arm.against_no_spec
    assert saved is not None
    assert (times.high - times.low) / times.value > 0.2
    assert saved.finished.ratio.high - saved.finished.ratio.low < 0.08


def test_time_per_k_follows_the_table() -> None:
    """Each batch size's time goes to the K that the table has there."""
    (arm,) = [
        a
        for a in replay(choices(a_surface(ENGINE), 32, SMALL).known, _traffic("busy"), PREFILL).choices
        if a.name == TABLE
    ]
    by_k = dict(arm.seconds_per_k)
    assert by_k[4] == pytest.approx(sum(arm.seconds_at[:4]))
    assert by_k[0] == pytest.approx(sum(arm.seconds_at[20:]))
    assert arm.full_share == pytest.approx(arm.seconds_at[-1] / sum(arm.seconds_at))


def test_nothing_is_known_above_what_was_measured() -> None:
    """More places than the largest batch size measured is refused, with what is possible."""
    with pytest.raises(UsageError, match=r"batch sizes end at 32.*--max-num-seqs 32 or less"):
        choices(a_surface(ENGINE), 33, None)


def test_traffic_passes_through_every_batch_size() -> None:
    """A grid that begins at 2 says nothing of a server that drains."""
    with pytest.raises(UsageError, match="from 1 to 8 are not all measured"):
        choices(a_surface(ENGINE, batch_sizes=(2, 4, 8)), 8, None)


def test_a_k_that_failed_is_left_out_aloud() -> None:
    """One K that could not be measured at a large batch takes its own arm with it, and not the others."""
    surface = a_surface(ENGINE)
    surface.dsd.point[-1, 4] = surface.dsd.draws[:, -1, 4] = np.nan
    found = choices(surface, 32, SMALL)
    assert [choice.name for choice in found.known] == [NO_SPECULATION, "K=1", "K=2", "K=3", TABLE]
    assert any("K=4 is left out: not measured at B=17 to 32" in remark for remark in found.remarks)


def test_fewer_places_make_a_queue() -> None:
    """With a quarter of the places requests wait, and that completion times are a queue's is said."""
    forecast = replay(choices(a_surface(ENGINE), 8, SMALL).known, _traffic("busy"), PREFILL)
    assert all(arm.max_num_seqs == len(arm.seconds_at) == 8 for arm in forecast.choices)
    assert any("wait for a place" in remark for remark in forecast.remarks)


def test_a_better_drafter_is_worth_something() -> None:
    """The same step times with every draft accepted save time, with none accepted they cost it."""
    requests = _traffic("light")
    for rate, said in ((1.0, Said.BETTER), (0.0, Said.WORSE)):
        surface = with_acceptance(a_surface(ENGINE), (rate,) * 4)
        arm = replay(choices(surface, 32, None).known, requests, PREFILL).choices[3]
        assert arm.against_no_spec is not None
        assert arm.against_no_spec.tpot is not None
        assert arm.against_no_spec.tpot.said is said


def test_prefill_is_taken_from_the_fastest_step() -> None:
    """Without a stated rate prompts go as fast as drafts were verified where that was fastest."""
    surface = a_surface(ENGINE)
    fastest = np.max(np.outer(surface.batch_sizes, np.arange(1, 6)) / np.exp(surface.dsd.point))
    assert verified_tokens_per_s(surface) == pytest.approx(fastest)


def test_no_request_is_no_forecast() -> None:
    """An empty trace is refused."""
    with pytest.raises(UsageError, match="no request"):
        replay(choices(a_surface(ENGINE), 32, None).known, [], PREFILL)


def test_one_token_each_has_no_tpot() -> None:
    """Requests of a single token have no time between tokens, and everything else is told."""
    arm = replay(choices(a_surface(ENGINE), 32, None).known, [Request(0.0, 10, 1)] * 3, PREFILL).choices[1]
    assert arm.tpot_s is None
    assert arm.against_no_spec is not None
    assert arm.against_no_spec.tpot is None


def test_rare_percentiles_need_enough_requests() -> None:
    """The 99th percentile is told of a thousand requests and more."""
    known = choices(a_surface(ENGINE), 32, None).known[:1]
    few, many = (
        replay(known, list(islice(poisson(_geometric(1), 5.0, n), n)), PREFILL).choices[0] for n in (999, 1000)
    )
    assert few.completion_s.p99 is None
    assert many.completion_s.p99 is not None


def test_memory_does_not_grow_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the requests, in a crowded server, take no more memory: they wait in the file."""
    monkeypatch.setattr("dsd_tune.replay.RESTS_ON", 500)
    monkeypatch.setattr("dsd_tune.replay._CHUNK", 500)

    def peak(requests: int) -> int:
        known = choices(a_surface(ENGINE), 2, None).known[:1]
        tracemalloc.start()
        replay(known, poisson(_geometric(1), 20.0, requests), PREFILL)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(20_000) < 1.1 * peak(5000)
