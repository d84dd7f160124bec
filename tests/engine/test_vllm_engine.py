"""The tuner's engine with a real vLLM and a model of half a megabyte."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.tiny_model import CONDITION, an_engine, make_drafter, make_target
from processes import has_ended

from dsd_tune.engines.vllm_engine import VllmEngine
from dsd_tune.engines.vllm_process import VllmProcess
from dsd_tune.errors import EngineFailed, EnvironmentUnfit, UsageError
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

STEPS = 5
LONG = Condition(480, 0.0)
WARM = Condition(256, 0.8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, its EAGLE drafter, and a drafter of another width."""
    folder = tmp_path_factory.mktemp("models")
    make_target(folder / "target")
    make_drafter(folder / "eagle")
    make_drafter(folder / "narrow", hidden_size=64)
    return folder


@pytest.fixture(scope="module")
def engine(models: Path, tmp_path_factory: pytest.TempPathFactory) -> VllmEngine:
    """The engine that most tests share."""
    return an_engine(models, tmp_path_factory.mktemp("logs"), conditions=(CONDITION, LONG))


@pytest.fixture(scope="module")
def dsd(engine: VllmEngine) -> Iterator[VllmProcess]:
    """One start with a table, kept for the whole module."""
    process = engine.start(Arm.DSD)
    yield process
    process.close()


def drafted(process: VllmProcess, batch_size: int, k: int) -> list[int]:
    """Drafts by position in one block of `STEPS` steps."""
    measured = process.measure(batch_size, k, condition=CONDITION, steps=STEPS, settle=2)
    assert len(measured.step_s) == STEPS
    return [sum(counts.drafted[i] for counts in measured.prompts) for i in range(k)]


def test_k_is_switched_live(dsd: VllmProcess) -> None:
    """In one running engine each block drafts B*K tokens a step, up and down, K=0 included.

    The random model never says its end of sequence within a block at B=1 and seldom at all, so at most a
    few requests count fewer positions.
    """
    for batch_size, k in [(8, 2), (8, 0), (8, 1), (3, 2), (6, 1)]:
        for count in drafted(dsd, batch_size, k):
            assert STEPS * (batch_size - 1) < count <= STEPS * batch_size


def test_switching_k_costs_no_step(dsd: VllmProcess) -> None:
    """Two settling steps are enough on this engine: every step after them is kept."""
    dsd.measure(4, 0, condition=CONDITION, steps=STEPS, settle=2)
    assert dsd.measure(4, 2, condition=CONDITION, steps=STEPS, settle=2).steps_run == STEPS


def test_sequences_stay_inside_the_window(dsd: VllmProcess) -> None:
    """However many blocks are run, no sequence outgrows the longest context asked for."""
    longest = [dsd.measure(2, 2, condition=CONDITION, steps=40, settle=2).context[1] for _ in range(6)]
    assert max(longest) <= 256


@pytest.mark.parametrize(("condition", "least"), [(CONDITION, 1), (LONG, 240)])
def test_each_context_has_its_own_sequences(dsd: VllmProcess, condition: Condition, least: int) -> None:
    """Short prompts are joined for a long context, and contexts switch live."""
    measured = dsd.measure(4, 2, condition=condition, steps=STEPS, settle=2)
    assert len(measured.step_s) == STEPS
    assert least <= measured.context[0] <= measured.context[1] <= condition.context


def test_a_temperature_is_each_requests_own(models: Path, tmp_path: Path) -> None:
    """Without speculation temperatures switch live; with it, a vLLM that loses them on CPUs is refused, and why."""
    engine = an_engine(models, tmp_path, conditions=(CONDITION, WARM))
    no_spec = engine.start(Arm.NO_SPEC)
    try:
        for condition in (CONDITION, WARM, CONDITION):
            assert len(no_spec.measure(2, 0, condition=condition, steps=STEPS, settle=2).step_s) == STEPS
    finally:
        no_spec.close()
    with pytest.raises(EnvironmentUnfit, match="random temperature on CPUs"):
        engine.describe()


def test_the_machine_is_read_with_each_block(dsd: VllmProcess) -> None:
    """A block tells how busy the machine was; without a GPU nothing is said of one."""
    machine = dsd.measure(1, 0, condition=CONDITION, steps=STEPS, settle=2).machine
    assert machine is not None
    assert machine.load_average is not None
    assert (machine.gpu_mhz, machine.throttle_reasons) == (None, None)


def test_an_idle_engine_leaves_the_processor_alone(dsd: VllmProcess) -> None:
    """An engine that waits for its next turn takes less than a tenth of a core from the one that is measured."""
    dsd.measure(1, 0, condition=CONDITION, steps=STEPS, settle=2)
    before = cpu_seconds(dsd.pid)
    select.select([], [], [], 3.0)
    assert cpu_seconds(dsd.pid) - before < 0.3


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_fingerprint_is_vllms_own(engine: VllmEngine) -> None:
    """What vLLM decides for itself is read back from it: here eager, on a CPU, without async scheduling."""
    environment = engine.describe()
    assert (environment.device, environment.method, environment.dtype) == ("cpu", "eagle", "bfloat16")
    assert environment.graphs_dsd.mode == environment.graphs_no_spec.mode == "NONE"
    assert environment.max_model_len == 512
    assert (environment.device_name != "", environment.threads) == (True, 1)
    assert not environment.async_scheduling
    assert engine.alive_together > 1


def test_the_other_arms_have_one_k_for_life(engine: VllmEngine) -> None:
    """Without a table a fixed K drafts itself and no speculation drafts nothing; asking for another K fails."""
    static, no_spec = engine.start(Arm.STATIC, 2), engine.start(Arm.NO_SPEC)
    try:
        assert drafted(static, 2, 2) == [2 * STEPS] * 2
        assert drafted(no_spec, 2, 0) == []
        with pytest.raises(EngineFailed, match="K=1"):
            static.measure(2, 1, condition=CONDITION, steps=1, settle=1)
    finally:
        static.close()
        no_spec.close()


def test_a_killed_engine_takes_nobody_with_it(engine: VllmEngine, dsd: VllmProcess) -> None:
    """An engine that dies is an error of its own; the parent and its other engines go on."""
    doomed = engine.start(Arm.NO_SPEC)
    os.kill(doomed.pid, signal.SIGKILL)
    with pytest.raises(EngineFailed, match="ended"):
        doomed.measure(1, 0, condition=CONDITION, steps=STEPS, settle=2)
    doomed.close()
    assert drafted(dsd, 1, 1)


def test_more_ks_than_sequences_can_still_be_switched(models: Path, tmp_path: Path) -> None:
    """Even where the batch is narrower than the list of Ks, every K can be reached."""
    process = an_engine(models, tmp_path, max_num_seqs=1).start(Arm.DSD)
    try:
        assert [len(drafted(process, 1, k)) for k in (2, 0, 1)] == [2, 0, 1]
    finally:
        process.close()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--no-such-flag",), "no-such-flag"),
        (("--max-model-len", "many"), "max-model-len"),
        (("--max-model-len", "9999"), "max_position_embeddings"),
        (("--max-model-len", "128"), "max_model_len 128"),
    ],
)
def test_a_bad_flag_is_the_users_to_mend(models: Path, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    """A flag that vLLM refuses comes back as a usage error in vLLM's words."""
    with pytest.raises(UsageError, match=said):
        an_engine(models, tmp_path, engine_flags=("--enforce-eager", *flags)).describe()


def test_a_misfit_drafter_is_refused(models: Path, tmp_path: Path) -> None:
    """A drafter of another width is refused by name before anything is loaded."""
    config = {"method": "eagle", "model": str(models / "narrow")}
    with pytest.raises(EnvironmentUnfit, match="hidden_size 64"):
        an_engine(models, tmp_path, speculative_config=config).describe()


def test_a_method_that_cannot_follow_a_table_is_refused(models: Path, tmp_path: Path) -> None:
    """A method that stops at a smaller K is refused although vLLM would start it."""
    with pytest.raises(EnvironmentUnfit, match="ngram_gpu"):
        an_engine(models, tmp_path, speculative_config={"method": "ngram_gpu", "prompt_lookup_max": 3}).describe()


def test_a_parent_killed_while_measuring_leaves_no_engine(models: Path, tmp_path: Path) -> None:
    """An engine in the middle of a block ends with the program that asked for it."""
    code = (
        "import sys; from pathlib import Path\n"
        "from dsd_tune.records.measurement import Arm; from engine.tiny_model import CONDITION, an_engine\n"
        "process = an_engine(Path(sys.argv[1]), Path(sys.argv[2])).start(Arm.NO_SPEC)\n"
        "print(process.pid, flush=True)\n"
        "while True: process.measure(1, 0, condition=CONDITION, steps=50, settle=1)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", code, str(models), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(json.loads(parent.stdout.readline()))
        parent.kill()
    assert has_ended(child, within_s=60)
