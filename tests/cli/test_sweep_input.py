import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.plan import Turn
from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.records.measurement import Arm, Block, Cell
from dsd_tune.report.live import Watcher
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory

EAGLE = '{"method": "eagle", "model": "drafter"}'
SMALL = ("--batch-sizes", "1,4", "--max-k", "2", "--starts", "2", "--target-regret", "90%")
TURNS = 2 * 2 * 2 * (1 + 3) + 1
"""Starts, rounds, batch sizes and Ks of both arms, and the reference after the first stop."""

Options = dict[str, object]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file with one prompt."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Why?"}\n')
    return path


@pytest.fixture
def sweep(cli: Any, tmp_path: Path, prompts: Path) -> Callable[..., Any]:
    """Runs `dsd-tune sweep` with everything it needs and the given words; a later flag overrides an earlier one."""
    needed = ("-o", tmp_path / "run", "--model", "target", "--speculative-config", EAGLE, "--prompts", prompts)
    return lambda *words: cli("sweep", *needed, *words)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Puts a simulated engine in vLLM's place; what is put into the dict changes it. `asked` is what was wanted."""
    made: dict[str, Any] = {"alive_together": 8}

    def start(**asked: Any) -> SimulatedEngine:
        options = {name: value for name, value in made.items() if name != "asked"}
        made["asked"] = asked
        return SimulatedEngine(**{"acceptance": (0.7, 0.6), "max_num_seqs": 4} | options)

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", start)
    return made


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes it an error to get as far as an engine."""

    def start(**asked: Any) -> SimulatedEngine:
        raise AssertionError("an engine was made")

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", start)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--speculative-config", "{method: eagle}"), "--speculative-config is not JSON"),
        (("--speculative-config", "[]"), "names no method and no model"),
        (
            ("--speculative-config", '{"method": "eagle", "num_speculative_tokens_per_batch_size": [[1, 2, 3]]}'),
            "holds num_speculative_tokens_per_batch_size already",
        ),
        (("--speculative-config", '{"method": "eagle", "num_speculative_tokens": 0}'), "largest K must be 1 or more"),
        (("--max-k", "0"), "largest K must be 1 or more, got 0"),
        (("--batch-sizes", "1,64", "--max-num-seqs", "32"), "batch size 64 exceeds --max-num-seqs 32"),
        (("--batch-sizes", "1,two"), "no list of whole numbers"),
        (("--batch-sizes", "0"), "batch size 0 is impossible"),
        (("--max-num-seqs", "0"), "--max-num-seqs must be 1 or more"),
        (("--budget", "10"), "'10' is no time to spend. Write 30s, 10m or 2h."),
        (("--budget", "0m"), "'0m' is no time to spend"),
        (("--target-regret", "2"), "'2' is no share to lose. Write 2% or 0.02."),
        (("--target-regret", "-1%"), "'-1%' is no share to lose"),
        (("--temperature", "inf"), "--temperature inf is no list of numbers"),
        (("--temperature", "0;0.7"), "--temperature 0;0.7 is no list of numbers"),
        (("--temperature", "0,-0.5"), "--temperature 0,-0.5 is no temperature"),
        (("--synthetic-acceptance", "0.5,0.7"), "--synthetic-acceptance 0.5,0.7 is no list of shares"),
        (("--synthetic-acceptance", "1.5"), "--synthetic-acceptance 1.5 is no list of shares"),
        (("--synthetic-acceptance", "high"), "--synthetic-acceptance high is no list of numbers"),
        (("--synthetic-acceptance", "0.7,0.5", "--max-k", "3"), "states 2 positions, and the largest K is 3"),
        (
            ("--speculative-config", '{"method": "eagle", "rejection_sample_method": "synthetic"}'),
            "--speculative-config states acceptance",
        ),
        (("--context", "512,"), "--context 512, is no list of numbers"),
        (("--context", "512.5"), "--context 512.5 is no list of tokens from 64 up"),
        (("--context", "16,512"), "--context 16,512 is no list of tokens from 64 up"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_impossible_requests_are_refused(
    sweep: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    """What makes no sense gets one sentence and exit code 2, before an engine or a folder is made."""
    assert complaint in sweep(*words).refused(2)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no prompts"),
        ("\n\n", "holds no prompts"),
        ('{"prompt": "x"}\n{"prompt"', "line 2 is not JSON"),
        ('{"question": "x"}', 'line 1 has no "prompt" text'),
    ],
    ids=["empty", "blank", "broken", "other"],
)
def test_useless_prompts_are_refused(
    sweep: Callable[..., Any], prompts: Path, tmp_path: Path, text: str, complaint: str
) -> None:
    """A prompts file without prompts is refused by name, and nothing is left behind."""
    prompts.write_text(text)
    sentence = sweep().refused(2)
    assert complaint in sentence
    assert str(prompts) in sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_engine")
def test_missing_prompts_are_refused(sweep: Callable[..., Any], tmp_path: Path) -> None:
    """A prompts file that does not exist is refused by name."""
    assert "nowhere.jsonl cannot be read" in sweep("--prompts", tmp_path / "nowhere.jsonl").refused(2)


def test_missing_flags_are_named(cli: Any, tmp_path: Path) -> None:
    """Without the testbed all three inputs are needed; the sentence names those missing and the way out."""
    sentence = cli("sweep", "-o", tmp_path / "run", "--model", "m").refused(2)
    assert "--speculative-config, --prompts must be given" in sentence
    assert "--testbed" in sentence


def test_a_sweep_ends_with_what_to_do_next(sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """Stdout holds the next command and nothing else; progress is on stderr."""
    said = sweep(*SMALL)
    assert (said.code, said.out) == (0, f"dsd-tune fit {tmp_path / 'run'}\n")
    assert f"{TURNS} of {TURNS} blocks" in said.err
    # More starts are added where their luck hides the verdict, which is a matter of test_spending.
    done, planned = re.findall(r"(\d+) of (\d+) blocks", said.err)[-1]
    assert done == planned == str(len(RunDirectory.open(tmp_path / "run").samples()))


def test_the_whole_path(cli: Any, sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """Sweep, fit and emit-config follow one another, each taking what the one before wrote."""
    sweep(*SMALL, "--", "--enforce-eager")
    fitted = cli("fit", tmp_path / "run")
    emitted = cli("emit-config", tmp_path / "run" / "profile.json", "--format", "json")
    assert fitted.code == emitted.code == 0
    assert json.loads(emitted.out)["num_speculative_tokens"] in {1, 2}


def test_flags_reach_the_engine(sweep: Callable[..., Any], engine: dict[str, Any]) -> None:
    """What stands after `--` reaches the engine word for word, and the request is what the manifest says."""
    sweep(*SMALL, "--temperature", "0.7", "--context", "512,128,512", "--", "--dtype", "bfloat16", "--enforce-eager")
    asked = engine["asked"]
    assert asked["engine_flags"] == ("--dtype", "bfloat16", "--enforce-eager")
    assert (asked["ks"], asked["max_num_seqs"]) == ((0, 1, 2), 4)
    assert asked["conditions"] == (Condition(128, 0.7), Condition(512, 0.7))
    assert asked["speculative_config"] == json.loads(EAGLE)
    assert (asked["load_format"], asked["synthetic_acceptance"]) == ("auto", ())


def test_what_is_stated_reaches_the_engine(sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """Stated acceptance sets the largest K, and is asked of the engine with the way to load weights."""
    engine["acceptance"] = (0.7, 0.6, 0.5)
    sweep("--batch-sizes", "1,4", "--starts", "2", "--load-format", "dummy", "--synthetic-acceptance", "0.7,0.5,0.3")
    asked = engine["asked"]
    assert (asked["ks"], asked["load_format"], asked["synthetic_acceptance"]) == (
        (0, 1, 2, 3),
        "dummy",
        (0.7, 0.5, 0.3),
    )
    assert RunDirectory.open(tmp_path / "run").manifest.request.synthetic_acceptance == (0.7, 0.5, 0.3)


def test_the_same_command_again_measures_nothing(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path
) -> None:
    """A finished run is left as it is, and the next command is told again."""
    sweep(*SMALL)
    before = (tmp_path / "run" / "samples.jsonl").read_bytes()
    said = sweep(*SMALL)
    assert said.out == f"dsd-tune fit {tmp_path / 'run'}\n"
    assert (tmp_path / "run" / "samples.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (("--model", "other"), "model: 'target' against 'other'"),
        (("--max-k", "1"), "ks: "),
        (("--seed", "7"), "seed: 0 against 7"),
        (("--batch-sizes", "1,2,4"), "batch_sizes: "),
    ],
    ids=" ".join,
)
def test_a_run_of_another_request_is_kept(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path, changed: tuple[str, ...], named: str
) -> None:
    """A run directory is never continued with another request; the difference is named."""
    sweep(*SMALL)
    before = (tmp_path / "run" / "samples.jsonl").read_bytes()
    sentence = sweep(*SMALL, *changed).err.splitlines()[-1]
    assert named in sentence
    assert sweep(*SMALL, *changed).code == 2
    assert (tmp_path / "run" / "samples.jsonl").read_bytes() == before


def test_a_run_of_another_environment_is_kept(sweep: Callable[..., Any], engine: dict[str, Any]) -> None:
    """A drafter that changed under the same name does not match the run: exit code 6, and the key is named."""
    sweep(*SMALL)
    engine["acceptance"] = (0.5, 0.5)
    said = sweep(*SMALL)
    assert said.code == 6
    assert "drafter_digest" in said.err.splitlines()[-1]


def test_a_folder_with_other_things_is_left_alone(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path
) -> None:
    """A folder that is not empty and no run is not written to."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    said = sweep(*SMALL)
    assert said.code == 2
    assert "is not empty and holds no run" in said.err
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_a_file_is_no_folder(sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """An output path that is a file is refused."""
    (tmp_path / "run").write_text("")
    said = sweep(*SMALL)
    assert said.code in {1, 2}
    assert said.err.splitlines()[-1].startswith("Error: ")


def test_an_unfit_environment_is_exit_code_3(
    sweep: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where this machine cannot do it, nothing is written and the exit code says so."""

    class Unfit(SimulatedEngine):
        def describe(self) -> Environment:
            raise EnvironmentUnfit("This vLLM has no tables.", "Install 0.24 or later.")

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", lambda **_: Unfit())
    said = sweep(*SMALL)
    assert (said.code, said.out) == (3, "")
    assert said.err.splitlines()[-1] == "Error: This vLLM has no tables. Install 0.24 or later."
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_an_engine_that_never_starts_is_an_error(sweep: Callable[..., Any], engine: dict[str, Any]) -> None:
    """An arm that does not come up ends the sweep with the engine's own words and exit code 1."""
    engine["failing_starts"] = [1]
    said = sweep(*SMALL)
    assert (said.code, said.out) == (1, "")
    assert "Error: Start 1 was planned to fail." in said.err


def test_a_failing_cell_does_not_end_the_sweep(
    cli: Any, sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path
) -> None:
    """A cell that ends its engine is reported by sweep and fit, and both go on."""
    engine["failing_cells"] = [Cell(Arm.DSD, 4, 2)]
    assert sweep(*SMALL).code == 0
    assert "dsd B=4 K=2 failed in 4 blocks" in cli("fit", tmp_path / "run").out


def _interrupted_after(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Ctrl-C once that many blocks are on disk."""
    plain = Watcher.measured
    left = [blocks]

    def measured(self: Watcher, sample: Block) -> None:
        plain(self, sample)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Watcher, "measured", measured)


def _turns(run: Path) -> list[Turn]:
    return [Turn.of(s) for s in RunDirectory.open(run).samples()]


@pytest.mark.parametrize("blocks", [5, TURNS + 3])
def test_an_interrupted_sweep_goes_on(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    """After Ctrl-C, among the arms or at the fixed K, the same command measures what is missing, each turn once."""
    engine["law"] = CostLaw(graphs_static=0.8)
    with monkeypatch.context() as patch:
        _interrupted_after(patch, blocks)
        said = sweep(*SMALL)
    assert said.code != 0
    assert "goes on from there" in said.err
    assert "Traceback" not in said.err
    assert len(_turns(tmp_path / "run")) == blocks
    assert sweep(*SMALL).code == 0
    turns = _turns(tmp_path / "run")
    assert len(turns) == len(set(turns))
    cells = Counter(turn.cell for turn in set(turns) if turn.round == 0)
    assert min(cells.values()) >= 2
    assert len(cells) == 2 * (1 + 3 + 1)


def test_a_budget_ends_a_sweep_and_more_of_it_goes_on(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path
) -> None:
    """A sweep without time to begin ends with exit code 0; asked again with more, it measures what is missing."""
    engine["law"] = CostLaw(graphs_static=0.8)
    assert sweep(*SMALL, "--budget", "0.0000001s").code == 0
    assert _turns(tmp_path / "run") == []
    assert sweep(*SMALL, "--budget", "10m").code == 0
    assert len(_turns(tmp_path / "run")) >= TURNS + 2 * 2 * 2 * 2 + 1


def test_a_sweep_that_ends_above_its_target_says_so(sweep: Callable[..., Any], engine: dict[str, Any]) -> None:
    """Whatever ends a sweep, a target that was not reached is told on stderr; one that was reached is not."""
    engine |= {"noise": Noise(step_sd=0.3), "acceptance": (0.35, 0.3)}
    assert "above --target-regret" not in sweep(*SMALL).err
    assert "above --target-regret of 0.0%: more --starts go on" in sweep(*SMALL, "--target-regret", "0.001%").err


def test_a_fixed_k_runs_only_where_graphs_differ(
    sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path
) -> None:
    """Where a table changes no CUDA graph, a fixed K in an engine of its own is not worth its time."""
    sweep(*SMALL)
    assert {turn.cell.arm for turn in _turns(tmp_path / "run")} == {Arm.NO_SPEC, Arm.DSD}


def test_a_run_in_use_is_refused(sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """A second sweep into the same run is told which process is at work."""
    sweep(*SMALL)
    with RunDirectory.open(tmp_path / "run").lock():
        said = sweep(*SMALL)
    assert said.code == 2
    assert "is in use by process" in said.err.splitlines()[-1]


def test_a_newer_manifest_is_refused(sweep: Callable[..., Any], engine: dict[str, Any], tmp_path: Path) -> None:
    """A run that a newer dsd-tune began is left alone."""
    sweep(*SMALL)
    newer = replace(formats.MANIFEST, version=99)
    formats.write(newer, tmp_path / "run" / "manifest.json", RunDirectory.open(tmp_path / "run").manifest)
    said = sweep(*SMALL)
    assert said.code == 2
    assert "was written by a newer dsd-tune" in said.err.splitlines()[-1]
