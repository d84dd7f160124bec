"""Everything around a vLLM engine that needs no vLLM: digests, early checks, messages, processes, counters."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from builders import A_CONDITION
from processes import has_ended

from dsd_tune.engines.protocol import Measured
from dsd_tune.engines.vllm_config import refuse_own_flags
from dsd_tune.engines.vllm_drafter import check_models
from dsd_tune.engines.vllm_engine import VllmEngine
from dsd_tune.engines.vllm_facts import sweep_table, table_obstacle
from dsd_tune.engines.vllm_log import last_words
from dsd_tune.engines.vllm_process import VllmProcess
from dsd_tune.engines.vllm_wire import (
    BlockOrder,
    Launch,
    block_line,
    error_line,
    launch_line,
    read_launch,
    read_measured,
    read_order,
    read_reply,
    reply_line,
)
from dsd_tune.errors import DsdTuneError, EngineFailed, EnvironmentUnfit, UsageError
from dsd_tune.records.condition import Condition
from dsd_tune.records.machine import MachineState
from dsd_tune.records.measurement import Arm, PromptCounts
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage.fingerprint import cached_snapshot, drafter_digest, model_digest, prompts_digest, weight_bytes

PROMPTS = (Prompt("a", "one"), Prompt("b", "two"))
LAUNCH = Launch(
    model="target",
    speculative_config={"method": "eagle", "model": "drafter"},
    ks=(0, 1, 2),
    max_num_seqs=8,
    conditions=(Condition(256, 0.0), Condition(1024, 0.7)),
    prompts=PROMPTS,
    engine_flags=("--enforce-eager",),
    load_format="auto",
    synthetic_acceptance=(0.7, 0.5),
    arm=Arm.STATIC,
    fixed_k=2,
    order="0/1",
)


def model_folder(folder: Path, weights: bytes = b"w" * 100, **config: object) -> Path:
    """A folder that looks like a model."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"hidden_size": 8, "vocab_size": 50, **config}))
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_equal_copies_have_equal_digests(tmp_path: Path) -> None:
    """Where a model lies does not matter, what it is does."""
    one, two = model_folder(tmp_path / "one"), model_folder(tmp_path / "elsewhere" / "two")
    assert model_digest(str(one)) == model_digest(str(two))


@pytest.mark.parametrize("change", [{"weights": b"v" * 100}, {"weights": b"w" * 101}, {"hidden_size": 9}])
def test_another_model_has_another_digest(tmp_path: Path, change: dict[str, object]) -> None:
    """Other weights, sizes or settings are another model."""
    one, two = model_folder(tmp_path / "one"), model_folder(tmp_path / "two", **change)  # type: ignore[arg-type]
    assert model_digest(str(one)) != model_digest(str(two))


def test_a_change_at_the_end_of_large_weights_is_seen(tmp_path: Path) -> None:
    """Of large files head and tail are read, so training on changes the digest."""
    body = bytes(3 << 20)
    one, two = model_folder(tmp_path / "one", body), model_folder(tmp_path / "two", body[:-1] + b"x")
    assert model_digest(str(one)) != model_digest(str(two))


def test_a_cached_model_is_known_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub's name is resolved to the snapshot that is used; one that is not cached is known by its name."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--name"
    snapshot = model_folder(repository / "snapshots" / "c0ffee")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    assert cached_snapshot("org/name") == snapshot
    assert [model_digest("org/name"), model_digest("org/other")] == ["org/name@c0ffee", "org/other"]
    assert weight_bytes("org/name") == 100
    assert weight_bytes("org/other") is None


def test_the_number_of_tokens_is_no_part_of_the_drafter(tmp_path: Path) -> None:
    """K is what is measured; any other setting of the drafter makes another drafter."""
    config = {"method": "eagle", "model": str(model_folder(tmp_path / "drafter"))}
    assert drafter_digest(config) == drafter_digest({**config, "num_speculative_tokens": 3})
    assert drafter_digest(config) != drafter_digest({**config, "draft_tensor_parallel_size": 1})


def test_prompts_are_told_apart_by_id_and_text() -> None:
    """Moving a letter from the id to the text, or changing the order, is another set of prompts."""
    sets = [PROMPTS, PROMPTS[::-1], (Prompt("ao", "ne"), PROMPTS[1])]
    assert len({prompts_digest(prompts) for prompts in sets}) == len(sets)


@pytest.mark.parametrize("model", ["/no/such/model", "./missing", "missing"])
def test_a_missing_folder_is_a_usage_error(model: str) -> None:
    """What looks like a path must exist; a hub's name has exactly one slash."""
    with pytest.raises(UsageError, match=model):
        check_models(model, {"method": "ngram"})


def test_a_hub_name_is_left_to_vllm() -> None:
    """A model that is not on this machine cannot be checked early and is no error."""
    check_models("org/never-downloaded", {"method": "eagle", "model": "org/its-drafter"})


@pytest.mark.parametrize("misfit", [{"hidden_size": 4}, {"vocab_size": 51}])
def test_a_drafter_for_another_target_is_refused(tmp_path: Path, misfit: dict[str, object]) -> None:
    """EAGLE reads the target's hidden states and proposes its tokens, so both sizes must agree."""
    target = model_folder(tmp_path / "target")
    drafter = model_folder(tmp_path / "drafter", **misfit)  # type: ignore[arg-type]
    with pytest.raises(EnvironmentUnfit, match=next(iter(misfit))):
        check_models(str(target), {"method": "eagle", "model": str(drafter)})


def test_a_draft_model_may_have_another_width(tmp_path: Path) -> None:
    """An independent draft model shares only the vocabulary."""
    target, drafter = model_folder(tmp_path / "target"), model_folder(tmp_path / "drafter", hidden_size=4)
    check_models(str(target), {"method": "draft_model", "model": str(drafter)})


@pytest.mark.parametrize(("ks", "max_num_seqs"), [((0, 1, 2, 4), 32), ((0, 3), 2), ((0, 1), 1000)])
def test_the_sweep_table_reaches_every_k_at_the_far_end(ks: tuple[int, ...], max_num_seqs: int) -> None:
    """vLLM captures graphs for a K up to the widest batch that has it, so each K gets one of the widest."""
    dense = {b: k for first, last, k in sweep_table(ks, max_num_seqs) for b in range(first, last + 1)}
    assert sorted(dense) == list(range(1, max_num_seqs + 1))
    assert {dense[b] for b in range(max_num_seqs - len(ks) + 1, max_num_seqs + 1)} == set(ks)


def test_a_sweep_table_needs_a_batch_size_for_each_k() -> None:
    """Three Ks cannot all be reached by two batch sizes."""
    with pytest.raises(ValueError, match="max_num_seqs"):
        sweep_table((0, 1, 2), 2)


@pytest.mark.parametrize(
    ("method", "parallel_drafting", "data_parallel_size"),
    [("suffix", False, 1), ("custom_class", False, 1), ("eagle3", True, 1), ("eagle", False, 2)],
)
def test_what_cannot_follow_a_table_is_known(method: str, parallel_drafting: bool, data_parallel_size: int) -> None:
    """Methods that stop, ignore or garble a smaller K, and data parallelism, have a reason to be refused."""
    assert table_obstacle(method, parallel_drafting=parallel_drafting, data_parallel_size=data_parallel_size)


@pytest.mark.parametrize(("method", "parallel_drafting"), [("eagle", False), ("ngram", False), ("dflash", True)])
def test_what_follows_a_table_is_not_refused(method: str, parallel_drafting: bool) -> None:
    """EAGLE, n-gram and the block drafters that honour K have no obstacle."""
    assert table_obstacle(method, parallel_drafting=parallel_drafting, data_parallel_size=1) is None


@pytest.mark.parametrize(
    "flag", ["--speculative-config={}", "--speculative_config", "--speculative-config.method", "-sc", "--load-format"]
)
def test_flags_that_dsd_tune_sets_itself_are_refused(flag: str) -> None:
    """A flag that would contradict the arm is refused however it is spelled."""
    with pytest.raises(UsageError, match="own"):
        refuse_own_flags(("--enforce-eager", flag, "x"))


def test_other_flags_pass() -> None:
    """Every other flag is vLLM's business."""
    refuse_own_flags(("--max-model-len", "1024", "-tp=2", "--enforce-eager"))


def test_a_launch_survives_the_wire() -> None:
    """The child starts exactly what the parent asked for."""
    assert read_launch(json.loads(launch_line("start", LAUNCH))["launch"]) == LAUNCH


def test_a_measurement_survives_the_wire() -> None:
    """The parent gets exactly what the child measured."""
    for machine in (None, MachineState(load_average=1.5), MachineState(gpu_mhz=1980.0, throttle_reasons=("heat",))):
        measured = Measured((0.25, 0.125), 3, (5, 9), (PromptCounts("a", 2, (2, 1), (1, 0)),), machine)
        assert read_measured(read_reply(reply_line(asdict(measured)))) == measured


def test_a_block_survives_the_way_to_its_engine() -> None:
    """The child measures exactly the block that was asked for."""
    order = BlockOrder(4, 2, Condition(512, 0.7), 8, 2)
    assert read_order(json.loads(block_line(order))["block"]) == order


@pytest.mark.parametrize("kind", [UsageError, EnvironmentUnfit, EngineFailed])
def test_an_error_keeps_its_class_on_the_wire(kind: type[DsdTuneError]) -> None:
    """The exit code that belongs to an error in the child is the one that the user gets."""
    with pytest.raises(kind, match=r"It broke\. Mend it\."):
        read_reply(error_line(kind("It broke.", "Mend it.")))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("INFO fine\nTraceback:\n  File x\nRuntimeError: no memory.\nINFO bye", "RuntimeError: no memory."),
        ("ValueError: bad block\nRuntimeError: failed. See root cause above.", "ValueError: bad block."),
        ("(Worker pid=1) ERROR 11-29 10:00:00 [worker.py:5] torch.OutOfMemoryError: full", "OutOfMemoryError: full."),
        ("loading\nKilled", "Killed."),
        ("", "nothing."),
    ],
)
def test_last_words_name_the_cause(tmp_path: Path, log: str, words: str) -> None:
    """Of a log, the last error that is not a mere pointer is reported, else its last line."""
    (tmp_path / "log").write_text(log)
    assert last_words(tmp_path / "log").endswith(words)


def test_a_dead_process_is_an_engine_failure(tmp_path: Path) -> None:
    """A child that dies gives an error naming its log, and closing it twice is harmless."""
    process = VllmProcess(tmp_path / "engine.log")
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineFailed, match=r"engine\.log"):
        process.measure(1, 0, condition=A_CONDITION, steps=1, settle=0)
    process.close()
    process.close()


def test_closing_ends_the_process(tmp_path: Path) -> None:
    """After close there is no child left, whatever it was doing."""
    process = VllmProcess(tmp_path / "engine.log")
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    with pytest.raises(EngineFailed, match="closed"):
        process.measure(1, 0, condition=A_CONDITION, steps=1, settle=0)


def test_a_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    """Even SIGKILL, after which the parent can clean nothing up, ends its engines."""
    code = (
        "import sys, time; from pathlib import Path; from dsd_tune.engines.vllm_process import VllmProcess\n"
        "print(VllmProcess(Path(sys.argv[1])).pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "engine.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        assert not has_ended(child, within_s=0)
        parent.kill()
    assert has_ended(child, within_s=60)


def an_engine(log_dir: Path, model: str) -> VllmEngine:
    """An engine that is never started."""
    return VllmEngine(model, {"method": "ngram"}, (0, 1), 4, (A_CONDITION,), PROMPTS, 0, (), log_dir)


def test_a_missing_model_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be told from the folders is told before anything is started."""
    monkeypatch.setattr("dsd_tune.engines.vllm_engine.find_spec", lambda name: name)
    with pytest.raises(UsageError, match="no model folder"):
        an_engine(tmp_path / "logs", str(tmp_path / "none")).describe()
    assert not (tmp_path / "logs").exists()


def test_without_vllm_the_environment_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM is not installed, the engine says so instead of failing on an import."""
    monkeypatch.setattr("dsd_tune.engines.vllm_engine.find_spec", lambda _name: None)
    with pytest.raises(EnvironmentUnfit, match="not installed"):
        an_engine(tmp_path, str(model_folder(tmp_path / "target"))).start(Arm.DSD)


@pytest.mark.parametrize(("arm", "fixed_k"), [(Arm.STATIC, None), (Arm.DSD, 2), (Arm.NO_SPEC, 1)])
def test_a_fixed_k_belongs_to_the_static_arm(tmp_path: Path, arm: Arm, fixed_k: int | None) -> None:
    """A fixed K elsewhere, or none there, is a caller's mistake."""
    with pytest.raises(ValueError, match="fixed_k"):
        an_engine(tmp_path, "org/model").start(arm, fixed_k)
