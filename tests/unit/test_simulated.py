import math
from itertools import accumulate, pairwise
from operator import mul
from statistics import median, pstdev
from typing import Any

import pytest
from builders import A_CONDITION
from hypothesis import given, settings
from hypothesis import strategies as st

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.protocol import Measured
from dsd_tune.engines.simulated import NO_NOISE, Noise, SimulatedEngine
from dsd_tune.errors import EngineFailed
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Cell


def _measured(engine: SimulatedEngine, cell: Cell, steps: int = 16) -> Measured:
    process = engine.start(cell.arm, cell.k if cell.arm is Arm.STATIC else None)
    measured = process.measure(cell.batch_size, cell.k, condition=A_CONDITION, steps=steps, settle=2)
    process.close()
    return measured


def _noise(**changed: Any) -> Noise:
    quiet: dict[str, Any] = {
        "start_sd": 0.0,
        "drift_per_hour": 0.0,
        "step_sd": 0.0,
        "outlier_share": 0.0,
        "broken_share": 0.0,
    }
    return Noise(**quiet | changed)


cells = st.one_of(
    st.builds(Cell, st.just(Arm.NO_SPEC), st.integers(1, 64), st.just(0)),
    st.builds(Cell, st.just(Arm.DSD), st.integers(1, 64), st.integers(0, 4)),
    st.builds(Cell, st.just(Arm.STATIC), st.integers(1, 64), st.integers(1, 4)),
)


@given(cells)
@settings(max_examples=40)
def test_without_noise_a_step_takes_what_the_law_says(cell: Cell) -> None:
    """Every measured step is the truth to the last bit once all luck is taken away."""
    engine = SimulatedEngine(noise=NO_NOISE)
    assert set(_measured(engine, cell).step_s) == {engine.true_step_s(cell)}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_tokens_per_step_are_the_bonus_and_the_chained_acceptance(rates: list[float]) -> None:
    """The true acceptance length adds, to one, the chance that each position is reached and accepted."""
    engine = SimulatedEngine(acceptance=tuple(rates))
    chained = list(accumulate(rates, mul))
    for k in range(len(rates) + 1):
        assert engine.true_tokens_per_step(k) == pytest.approx(1 + sum(chained[:k]))


def test_tpot_joins_cost_and_acceptance() -> None:
    """The true TPOT is step time over tokens per step."""
    engine = SimulatedEngine()
    cell = Cell(Arm.DSD, 8, 2)
    assert engine.true_tpot_s(cell) * engine.true_tokens_per_step(2) == pytest.approx(engine.true_step_s(cell))


def test_acceptance_is_claimed_for_known_positions_only() -> None:
    """Beyond the last known position there is no truth to tell."""
    with pytest.raises(ValueError, match="from 0 to 4"):
        SimulatedEngine().true_tokens_per_step(5)


def test_counts_approach_the_known_acceptance() -> None:
    """Pooled over many prompts, tokens per step come within 3 % of the truth."""
    engine = SimulatedEngine(noise=_noise(), prompts=2048)
    process = engine.start(Arm.DSD)
    counts = [c for _ in range(200) for c in process.measure(64, 4, condition=A_CONDITION, steps=16, settle=0).prompts]
    pooled = sum(c.tokens for c in counts) / sum(c.steps for c in counts)
    assert pooled == pytest.approx(engine.true_tokens_per_step(4), rel=0.03)


def test_prompts_differ_in_acceptance() -> None:
    """Prompts spread further around the mean than chance alone would have them, and less at a higher concentration."""

    def spread(concentration: float) -> float:
        engine = SimulatedEngine(noise=_noise(prompt_concentration=concentration))
        counts = _measured(engine, Cell(Arm.DSD, 64, 1), steps=192).prompts
        return pstdev(c.accepted[0] / c.steps for c in counts)

    by_chance = math.sqrt(0.7 * 0.3 / 192)
    assert spread(8) > 3 * by_chance
    assert spread(1e9) < 1.5 * by_chance


def test_no_prompt_is_decoded_twice_at_once() -> None:
    """However batches shrink and grow, the requests of a block have prompts of their own."""
    process = SimulatedEngine(noise=_noise(), max_num_seqs=8, prompts=8).start(Arm.DSD)
    for batch_size in (8, 3, 8, 5, 8, 1, 7):
        prompts = process.measure(batch_size, 1, condition=A_CONDITION, steps=4, settle=0).prompts
        assert len({counts.prompt for counts in prompts}) == batch_size


def test_same_seed_same_answers() -> None:
    """All that an engine says follows from its seed, and another seed says something else."""
    one, again, other = (_measured(SimulatedEngine(seed=seed), Cell(Arm.DSD, 8, 2)) for seed in (1, 1, 2))
    assert one == again
    assert one.step_s != other.step_s


def test_verification_is_flat_then_rises() -> None:
    """Up to the critical size tokens are free; beyond it each costs the slope."""
    law = CostLaw(critical_tokens=32, slope_s=0.001)
    times = [law.verify_tokens_s(tokens) for tokens in (1, 32, 33, 42)]
    assert times[0] == times[1]
    assert times[2] - times[1] == pytest.approx(0.001)
    assert times[3] - times[1] == pytest.approx(0.010)


def test_tokens_are_padded_to_the_next_capture_size() -> None:
    """Tokens cost what the next capture size costs, and what they are beyond the largest."""
    law = CostLaw(capture_sizes=(1, 2, 4, 8, 64))
    assert [law.padded(tokens) for tokens in (1, 3, 8, 9, 64, 65)] == [1, 4, 8, 64, 64, 65]


def test_a_cliff_is_a_jump() -> None:
    """Past the cliff a step costs that much more, with nothing in between."""
    law = CostLaw(cliff_tokens=16, cliff_s=0.05)
    assert law.verify_tokens_s(17) - law.verify_tokens_s(16) == pytest.approx(0.05)


def test_experts_make_small_batches_pay_for_tokens() -> None:
    """A mixture of experts costs more with each token, ever less steeply, below the critical size too."""
    law = CostLaw(experts_s=0.02, expert_share=0.1)
    rises = [b - a for a, b in pairwise(law.verify_tokens_s(tokens) for tokens in range(1, 20))]
    assert all(0 < later < earlier for earlier, later in pairwise(rises))


@pytest.mark.parametrize("k", [0, 2])
def test_the_table_costs_a_tax_that_grows_with_the_batch(k: int) -> None:
    """The table's engine pays for its machinery at every K, K=0 included, and more in a larger batch."""
    law = CostLaw(tax_s=0.001, tax_request_s=0.0001)
    other = Arm.STATIC if k else Arm.NO_SPEC
    taxes = [law.step_s(Cell(Arm.DSD, b, k)) - law.step_s(Cell(other, b, k)) for b in (1, 32)]
    assert taxes == pytest.approx([0.0011, 0.0042])


def test_graphs_make_arms_differ_at_the_same_k() -> None:
    """Where the table's engine runs slower CUDA graphs, its steps are longer and its environment says so."""
    law = CostLaw(tax_s=0, tax_request_s=0, graphs_dsd=1.5)
    assert law.step_s(Cell(Arm.DSD, 4, 2)) > law.step_s(Cell(Arm.STATIC, 4, 2))
    assert SimulatedEngine(law).describe().table_changes_graphs
    assert not SimulatedEngine().describe().table_changes_graphs


def test_a_start_keeps_its_luck() -> None:
    """Two blocks of one start agree, and two starts of the same arm do not."""
    engine = SimulatedEngine(noise=_noise(start_sd=0.1), alive_together=2)
    one, other = engine.start(Arm.NO_SPEC), engine.start(Arm.NO_SPEC)
    first, second, third = (
        p.measure(4, 0, condition=A_CONDITION, steps=3, settle=0).step_s[0] for p in (one, one, other)
    )
    assert first == second
    assert first != third


def test_the_machine_drifts_with_the_virtual_clock() -> None:
    """The same cell takes longer later, by the stated share an hour."""
    engine = SimulatedEngine(noise=_noise(drift_per_hour=0.4))
    process = engine.start(Arm.NO_SPEC)
    early = process.measure(1, 0, condition=A_CONDITION, steps=1, settle=0).step_s[0]
    engine.pass_s(3600)
    late = process.measure(1, 0, condition=A_CONDITION, steps=1, settle=0).step_s[0]
    assert late / early == pytest.approx(math.exp(0.4), rel=1e-3)


def test_neighbouring_steps_are_alike() -> None:
    """Step noise carries over: neighbours correlate as stated, so a block says less than its steps would."""
    engine = SimulatedEngine(noise=_noise(step_sd=0.05, correlation=0.6))
    logs = [math.log(s) for s in _measured(engine, Cell(Arm.NO_SPEC, 1, 0), steps=20_000).step_s]
    mean = sum(logs) / len(logs)
    covariance = sum((a - mean) * (b - mean) for a, b in pairwise(logs)) / len(logs)
    assert pstdev(logs) == pytest.approx(0.05, rel=0.1)
    assert covariance / pstdev(logs) ** 2 == pytest.approx(0.6, abs=0.05)


def test_outliers_move_the_mean_and_not_the_median() -> None:
    """A few steps take several times as long, which the median does not notice."""
    engine = SimulatedEngine(noise=_noise(outlier_share=0.1, outlier_factor=5.0))
    cell = Cell(Arm.NO_SPEC, 1, 0)
    step_s = _measured(engine, cell, steps=500).step_s
    assert median(step_s) == engine.true_step_s(cell)
    assert sum(step_s) / len(step_s) > 1.2 * median(step_s)


def test_broken_steps_are_run_and_not_kept() -> None:
    """Steps that break the rules lengthen the block without entering it."""
    engine = SimulatedEngine(noise=_noise(broken_share=0.5))
    measured = _measured(engine, Cell(Arm.NO_SPEC, 1, 0), steps=100)
    assert len(measured.step_s) == 100
    assert 150 < measured.steps_run < 250


def test_context_stays_in_the_window() -> None:
    """Requests are replaced before they leave the window, however long the engine runs."""
    engine = SimulatedEngine(noise=_noise())
    process = engine.start(Arm.DSD)
    contexts = [process.measure(8, 4, condition=Condition(256, 0.0), steps=8, settle=0).context for _ in range(50)]
    assert max(longest for _, longest in contexts) <= 256
    assert min(shortest for shortest, _ in contexts) >= 1


def test_a_context_that_does_not_fit_is_refused() -> None:
    """A window longer than what the engine was made for is the caller's mistake."""
    process = SimulatedEngine(max_context=256).start(Arm.NO_SPEC)
    with pytest.raises(ValueError, match="holds 256 tokens, not 257"):
        process.measure(1, 0, condition=Condition(257, 0.0), steps=1, settle=0)


def test_a_planned_failure_ends_its_engine_alone() -> None:
    """A cell planned to fail takes its engine with it, and the next start can go on without it."""
    bad = Cell(Arm.DSD, 8, 4)
    engine = SimulatedEngine(failing_cells=[bad])
    process = engine.start(Arm.DSD)
    process.measure(8, 3, condition=A_CONDITION, steps=2, settle=0)
    with pytest.raises(EngineFailed, match="dsd B=8 K=4 was planned"):
        process.measure(8, 4, condition=A_CONDITION, steps=2, settle=0)
    with pytest.raises(EngineFailed, match="closed"):
        process.measure(8, 3, condition=A_CONDITION, steps=2, settle=0)
    assert engine.start(Arm.DSD).measure(8, 3, condition=A_CONDITION, steps=2, settle=0).step_s


def test_a_planned_start_does_not_come_up() -> None:
    """Of three starts the second fails, as planned, and the third comes up."""
    engine = SimulatedEngine(failing_starts=[1])
    engine.start(Arm.DSD).close()
    with pytest.raises(EngineFailed, match="Start 1 was planned"):
        engine.start(Arm.DSD)
    engine.start(Arm.DSD).close()


def test_no_more_engines_live_than_fit() -> None:
    """A start beyond those that fit fails until one is closed."""
    engine = SimulatedEngine(alive_together=2)
    first = engine.start(Arm.DSD)
    engine.start(Arm.NO_SPEC)
    with pytest.raises(EngineFailed, match="no more fit"):
        engine.start(Arm.DSD)
    first.close()
    engine.start(Arm.DSD)


def test_the_clock_moves_by_starts_and_steps_alone() -> None:
    """Virtual time is the starts plus every step that was run, settling included."""
    engine = SimulatedEngine(noise=NO_NOISE, start_takes_s=10.0)
    cell = Cell(Arm.NO_SPEC, 4, 0)
    _measured(engine, cell, steps=6)
    assert engine.now_s() == pytest.approx(10.0 + 8 * engine.true_step_s(cell))


def test_another_law_is_another_environment() -> None:
    """Runs of engines that differ in law, acceptance or prompts cannot be merged."""
    plain = SimulatedEngine().describe()
    others = [SimulatedEngine(CostLaw(slope_s=1.0)), SimulatedEngine(acceptance=(0.5,)), SimulatedEngine(prompts=300)]
    keys = [{d.key for d in plain.differences(engine.describe())} for engine in others]
    assert keys == [{"model_digest"}, {"drafter_digest", "k_max"}, {"prompts_digest"}]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: CostLaw(capture_sizes=(4, 2)), id="falling capture sizes"),
        pytest.param(lambda: CostLaw(verify_s=0.0), id="free verification"),
        pytest.param(lambda: CostLaw(expert_share=1.5), id="more than all experts"),
        pytest.param(lambda: Noise(correlation=1.0), id="endless correlation"),
        pytest.param(lambda: Noise(start_sd=-0.1), id="negative spread"),
        pytest.param(lambda: Noise(outlier_factor=0.0), id="steps of no time"),
        pytest.param(lambda: SimulatedEngine(acceptance=()), id="no acceptance"),
        pytest.param(lambda: SimulatedEngine(acceptance=(1.1,)), id="more accepted than drafted"),
        pytest.param(lambda: SimulatedEngine(prompts=63, max_num_seqs=64), id="the same prompt twice at once"),
    ],
)
def test_a_world_that_cannot_be_is_refused(make: Any) -> None:
    """A law, a noise or an acceptance that makes no sense is refused before anything is measured."""
    with pytest.raises(ValueError, match=r"got|takes time|too few"):
        make()


def test_the_cache_of_a_context_is_read_once_for_all_tokens_of_a_step() -> None:
    """A longer context costs each request the same at every K, which makes drafts the cheaper for it."""
    engine = SimulatedEngine(CostLaw(kv_s=1e-5), noise=NO_NOISE, max_context=4096, contexts=(512, 4096))
    for k in (0, 4):
        process = engine.start(Arm.DSD)
        short, long = (
            process.measure(8, k, condition=Condition(context, 0.0), steps=2, settle=0).step_s[0]
            for context in (512, 4096)
        )
        process.close()
        assert long - short == pytest.approx(8 * 1e-5 * (4096 - 512))
