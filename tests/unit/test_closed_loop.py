"""What a profile says of clients that keep a server at one concurrency."""

from dataclasses import replace

import numpy as np
import pytest
from builders import a_profile
from queueing_truth import step_by_step
from sweeping import fitted, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.model.closed_loop import ClosedLoop, Expectations, Outcome
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table
from dsd_tune.records.trace import Request
from dsd_tune.records.validation import ServedArm

ENGINE = SimulatedEngine(
    CostLaw(critical_tokens=8, slope_s=0.003),
    (0.8, 0.7),
    noise=Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01),
    max_num_seqs=16,
    alive_together=8,
)


@pytest.fixture(scope="module")
def profile() -> Profile:
    """A sweep up to 16 requests and K=2, with K=2 to batch size 4 and K=1 above."""
    found = fitted(swept(ENGINE, starts=3))
    table = Table.from_dense([2] * 4 + [1] * 12)
    return replace(found, decision=replace(found.decision, table=table, fixed_k=2))


def _of(
    profile: Profile, arm: ServedArm, concurrency: int, prefill_s: float = 0.0, waves: int = 8, prompt: int = 1
) -> Outcome:
    load = ClosedLoop(concurrency, (((prompt, 128),) * waves * concurrency,), prefill_s)
    found = Expectations(profile).of(arm, load)
    assert found is not None
    return found


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_without_prefills_and_luck_a_load_is_as_fast_as_its_batch_size(profile: Profile, concurrency: int) -> None:
    """Requests of one length without speculation begin and end together: step time is TPOT."""
    found = _of(profile, ServedArm.NO_SPEC, concurrency).tpot_s
    truth = ENGINE.true_step_s(Cell(Arm.NO_SPEC, concurrency, 0))
    assert found.value == pytest.approx(truth, rel=0.02)
    assert found.low <= found.value <= found.high


def test_prompts_of_others_are_in_the_tpot(profile: Profile) -> None:
    """With drafts requests fall out of step, and each waits for the prompts of the others."""
    calm, busy = (_of(profile, ServedArm.FIXED, 16, prefill_s).tpot_s.value for prefill_s in (0.0, 0.05))
    # A request lives through a prompt of each of the other fifteen, give or take those that come along with its own.
    assert calm + 0.5 * 15 * 0.05 / 127 < busy < calm + 1.2 * 15 * 0.05 / 127
    assert _of(profile, ServedArm.FIXED, 16, 0.001, prompt=50).tpot_s.value == pytest.approx(busy)
    alone = [_of(profile, ServedArm.FIXED, 1, prefill_s).tpot_s.value for prefill_s in (0.0, 0.05)]
    assert alone[0] == pytest.approx(alone[1])


def test_a_thinning_batch_is_faster_than_a_full_one(profile: Profile) -> None:
    """In two waves the end weighs more than in twenty; both are below the steady TPOT of the full batch."""
    steady = Expectations(profile).steady_tpot_s(ServedArm.FIXED, 16)
    assert steady is not None
    few, many = (_of(profile, ServedArm.FIXED, 16, waves=waves).tpot_s.value for waves in (2, 20))
    assert few < many < steady * 1.01


@pytest.mark.parametrize(("arm", "k"), [(ServedArm.NO_SPEC, 0), (ServedArm.FIXED, 2), (ServedArm.TABLE, 1)])
def test_the_mean_k_is_that_of_the_batches_that_ran(profile: Profile, arm: ServedArm, k: int) -> None:
    """At 16 at a time a table runs at its K of large batches, but for the end."""
    found = _of(profile, arm, 16)
    assert found.mean_k == pytest.approx(k, abs=0.15)
    assert (found.acceptance_length is None) == (k == 0)


def test_the_acceptance_length_is_of_steps_with_drafts(profile: Profile) -> None:
    """At a fixed K it is that of the sweep at this K."""
    found = _of(profile, ServedArm.FIXED, 4)
    assert found.acceptance_length == pytest.approx(ENGINE.true_tokens_per_step(2), rel=0.03)


def test_nothing_is_expected_where_nothing_is_known(profile: Profile) -> None:
    """A policy may look at anything, and a profile with one cell knows no batch size from 1 on."""
    load = ClosedLoop(4, (((1, 128),) * 8,), 0.0)
    assert Expectations(profile).of(ServedArm.POLICY, load) is None
    assert Expectations(a_profile()).of(ServedArm.NO_SPEC, load) is None
    assert Expectations(a_profile()).steady_tpot_s(ServedArm.NO_SPEC, 4) is None


def test_uncertain_steps_make_an_uncertain_tpot(profile: Profile) -> None:
    """Engine starts that differ by a tenth widen the interval."""
    noisy = SimulatedEngine(
        ENGINE.law,
        (0.8, 0.7),
        noise=Noise(start_sd=0.1, drift_per_hour=0, step_sd=0.01),
        max_num_seqs=16,
        alive_together=8,
    )
    wide, narrow = (_of(p, ServedArm.NO_SPEC, 4).tpot_s for p in (fitted(swept(noisy, starts=3)), profile))
    assert np.log(wide.high / wide.low) > 2 * np.log(narrow.high / narrow.low)


@pytest.mark.parametrize("concurrency", [4, 16])
@pytest.mark.parametrize("arm", [ServedArm.FIXED, ServedArm.TABLE])
def test_a_load_is_foretold_within_a_few_percent(profile: Profile, arm: ServedArm, concurrency: int) -> None:
    """Against a simulation of every token: unlike lengths, prompts of a step or two, two waves and ten."""
    ks = [2] * 16 if arm is ServedArm.FIXED else [2] * 4 + [1] * 12
    for waves in (2, 10):
        texts = tuple([(20, 128), (40, 32), (35, 96), (25, 64)][n % 4] for n in range(waves * concurrency))
        load = ClosedLoop(concurrency, (texts,), 0.001)
        requests = [Request(0.0, *lengths) for lengths in texts]
        seen = [step_by_step(ENGINE, requests, ks[:concurrency], Arm.DSD, load.prefill_s, seed) for seed in range(4)]
        found = Expectations(profile).of(arm, load)
        assert found is not None
        assert found.tpot_s.value == pytest.approx(np.mean([s.tpot_s.mean() for s in seen]), rel=0.04)
