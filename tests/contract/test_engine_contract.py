"""What the tuner relies on, asked of every engine there is."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dsd_tune.engines.protocol import Engine, RunningEngine
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.errors import EngineFailed
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm
from dsd_tune.storage.prompts import load_prompts

KS = (0, 1, 2)
MAX_NUM_SEQS = 4
MAX_CONTEXT = 384
CONTEXTS = (192, MAX_CONTEXT)
CONDITIONS = tuple(Condition(context, 0.0) for context in CONTEXTS)
CONDITION = CONDITIONS[0]
STEPS = 6

Start = Callable[[Arm, int | None], RunningEngine]


def _simulated() -> Engine:
    return SimulatedEngine(
        acceptance=(0.6, 0.4),
        max_num_seqs=MAX_NUM_SEQS,
        max_context=MAX_CONTEXT,
        contexts=CONTEXTS,
        alive_together=2,
    )


def _vllm(log_dir: Path) -> Engine:
    from dsd_tune.engines.vllm_engine import VllmEngine
    from dsd_tune.testbed.prepare import prepare

    testbed = prepare(print)
    return VllmEngine(
        model=str(testbed.target),
        speculative_config={"method": "eagle", "model": str(testbed.eagle)},
        ks=KS,
        max_num_seqs=MAX_NUM_SEQS,
        conditions=CONDITIONS,
        prompts=load_prompts(testbed.prompts),
        seed=1,
        engine_flags=("--max-model-len", "512", "--enforce-eager"),
        log_dir=log_dir,
    )


@pytest.fixture(scope="module", params=["simulated", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Each engine that implements the protocol."""
    return _simulated() if request.param == "simulated" else _vllm(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def start(engine: Engine) -> Iterator[Start]:
    """Starts that are kept for the whole module, since a real one takes a while; one lives at a time."""
    alive: dict[tuple[Arm, int | None], RunningEngine] = {}

    def start_or_reuse(arm: Arm, fixed_k: int | None) -> RunningEngine:
        if (arm, fixed_k) not in alive:
            while alive:
                alive.popitem()[1].close()
            alive[arm, fixed_k] = engine.start(arm, fixed_k)
        return alive[arm, fixed_k]

    yield start_or_reuse
    while alive:
        alive.popitem()[1].close()


def test_describing_twice_says_the_same(engine: Engine) -> None:
    """The fingerprint is stable: an engine is comparable with itself."""
    assert engine.describe().differences(engine.describe()) == []


def test_the_fingerprint_is_complete(engine: Engine) -> None:
    """The fingerprint leaves no text empty but the driver's, and holds what the engine was asked for."""
    environment = engine.describe()
    texts = ["model_digest", "drafter_digest", "method", "vllm_version", "runner", "device", "device_name", "dtype"]
    assert [name for name in texts if not getattr(environment, name)] == []
    assert (environment.max_num_seqs, environment.k_max) == (MAX_NUM_SEQS, max(KS))
    assert environment.max_model_len >= MAX_CONTEXT
    assert environment.graphs_no_spec.mode
    assert environment.prompts_digest


def test_at_least_one_engine_can_live(engine: Engine) -> None:
    """An engine that could not be started at all would have no number of starts that fit."""
    assert engine.alive_together >= 1


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("batch_size", [1, MAX_NUM_SEQS])
def test_a_block_holds_the_steps_asked_for(start: Start, batch_size: int, k: int) -> None:
    """A block has exactly the steps asked for, of positive time, out of at least as many that were run."""
    measured = start(Arm.DSD, None).measure(batch_size, k, condition=CONDITION, steps=STEPS, settle=2)
    assert len(measured.step_s) == STEPS
    assert min(measured.step_s) > 0
    assert measured.steps_run >= STEPS


@pytest.mark.parametrize("k", KS)
def test_each_position_is_drafted_in_each_step(start: Start, k: int) -> None:
    """K is what every request is drafted in every step; only the step that ends a text may count fewer."""
    measured = start(Arm.DSD, None).measure(MAX_NUM_SEQS, k, condition=CONDITION, steps=STEPS, settle=2)
    assert measured.prompts
    for counts in measured.prompts:
        assert len(counts.drafted) == len(counts.accepted) == k
        assert all(counts.steps - 1 <= drafted <= counts.steps for drafted in counts.drafted)


def test_acceptance_falls_with_the_position(start: Start) -> None:
    """A position is accepted only where the one before it was."""
    measured = start(Arm.DSD, None).measure(MAX_NUM_SEQS, max(KS), condition=CONDITION, steps=STEPS, settle=2)
    assert all(late <= early for counts in measured.prompts for early, late in pairwise(counts.accepted))


def test_each_request_decodes_a_text_of_its_own(start: Start) -> None:
    """A block counts each prompt once, and no more prompts or steps than the batch had."""
    measured = start(Arm.DSD, None).measure(MAX_NUM_SEQS, 1, condition=CONDITION, steps=STEPS, settle=2)
    names = [counts.prompt for counts in measured.prompts]
    assert len(set(names)) == len(names) <= MAX_NUM_SEQS
    assert all(1 <= counts.steps <= STEPS for counts in measured.prompts)


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_sequences_stay_in_the_window(start: Start, condition: Condition) -> None:
    """However many blocks are measured, sequences stay within their context, and above half of all but the smallest."""
    running = start(Arm.DSD, None)
    blocks = [running.measure(2, max(KS), condition=condition, steps=16, settle=2) for _ in range(4)]
    least = condition.context // 2 if condition.context > min(CONTEXTS) else 1
    assert all(least <= shortest <= longest <= condition.context for shortest, longest in (b.context for b in blocks))
    assert all(len(block.step_s) == 16 and block.prompts for block in blocks)


def test_no_spec_drafts_nothing(start: Start) -> None:
    """An engine without speculation counts steps and no drafts."""
    measured = start(Arm.NO_SPEC, None).measure(MAX_NUM_SEQS, 0, condition=CONDITION, steps=STEPS, settle=2)
    assert len(measured.step_s) == STEPS
    assert {(counts.drafted, counts.accepted) for counts in measured.prompts} == {((), ())}


def test_static_drafts_its_fixed_k(start: Start) -> None:
    """An engine with a fixed K drafts that many and has no table to say otherwise."""
    measured = start(Arm.STATIC, 2).measure(2, 2, condition=CONDITION, steps=STEPS, settle=2)
    assert {len(counts.drafted) for counts in measured.prompts} == {2}


@pytest.mark.parametrize(("arm", "fixed_k"), [(Arm.STATIC, None), (Arm.DSD, 1), (Arm.NO_SPEC, 1)])
def test_a_fixed_k_belongs_to_static_alone(engine: Engine, arm: Arm, fixed_k: int | None) -> None:
    """The arm `static` needs a fixed K, and no other arm takes one."""
    with pytest.raises(ValueError, match="fixed"):
        engine.start(arm, fixed_k)


def test_a_closed_engine_stays_closed(engine: Engine) -> None:
    """Closing twice is safe, and a block asked of a closed engine is an engine's failure, not a crash."""
    running = engine.start(Arm.NO_SPEC)
    running.close()
    running.close()
    with pytest.raises(EngineFailed):
        running.measure(1, 0, condition=CONDITION, steps=1, settle=0)
