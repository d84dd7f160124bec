"""`dsd-tune tune` on a simulated engine and simulated servers, as users run it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_host import SimulatedClient, lay

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.plan import Turn
from dsd_tune.records.environment import Environment
from dsd_tune.records.validation import ArmCommand, ServedArm
from dsd_tune.report.live import Watcher
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest
from dsd_tune.storage.run_directory import RunDirectory

EAGLE = {"method": "eagle", "model": "drafter"}
SIZES = ("--batch-sizes", "1,4,16", "--max-k", "2", "--starts", "3", "--rounds", "1", "--target-regret", "90%")
CALM = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01)
STEEP, FLAT = CostLaw(critical_tokens=8, slope_s=0.003), CostLaw(critical_tokens=8, slope_s=0.02)

Tune = Callable[..., Any]


class Described(SimulatedEngine):
    """A simulated engine that was made for the model and the drafter that the command names."""

    def describe(self) -> Environment:
        """With their digests."""
        digests = {"model_digest": model_digest("target"), "drafter_digest": drafter_digest(EAGLE)}
        return replace(super().describe(), model="target", method="eagle", **digests)


@pytest.fixture(autouse=True)
def _few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)


@pytest.fixture
def served() -> list[ArmCommand]:
    """Every command that a server was started with."""
    return []


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, served: list[ArmCommand]) -> dict[str, Any]:
    """Engine and servers of one law; what is put into the dict changes it."""
    made: dict[str, Any] = {"law": STEEP, "acceptance": (0.8, 0.7), "noise": CALM, "ignores_tables": False}

    def start(**_: Any) -> SimulatedEngine:
        options = {key: value for key, value in made.items() if key != "ignores_tables"}
        simulated = Described(**options, max_num_seqs=16, alive_together=8)
        lay(monkeypatch, simulated, served, ignores_tables=made["ignores_tables"])
        return simulated

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", start)
    return made


@pytest.fixture
def tune(cli: Any, tmp_path: Path, engine: dict[str, Any]) -> Tune:
    """Runs `dsd-tune tune` with everything it needs and the given words."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')
    needed = ("-o", tmp_path / "run", "--model", "target", "--speculative-config", json.dumps(EAGLE))
    return lambda *words: cli("tune", *needed, "--prompts", prompts, *SIZES, *words)


def test_one_command_ends_in_a_proven_line(tune: Tune, run: Path, served: list[ArmCommand]) -> None:
    """A law that deserves a table: three stages on stderr, the record in the profile, the line to paste last."""
    said = tune()
    assert said.code == 0, said.err
    assert [line for line in said.err.splitlines() if " of 3: " in line and "fit:" not in line] == [
        "1 of 3: sweep",
        "2 of 3: fit",
        "3 of 3: validate",
    ]
    profile = formats.read(formats.PROFILE, run / "profile.json")
    assert profile.validation is not None
    assert profile.decision.table is not None
    last = said.out.splitlines()[-1]
    assert last.startswith("vllm serve target --max-num-seqs 16")
    assert json.dumps(profile.decision.table.as_lists(), separators=(",", ":")) in last
    assert Counter(command.arm for command in served) == dict.fromkeys(
        (ServedArm.NO_SPEC, ServedArm.FIXED, ServedArm.TABLE), 3
    )
    assert "Validated on" in said.err
    assert max(map(len, said.out.splitlines()[:-1])) <= 80


def test_json_is_one_object(tune: Tune) -> None:
    """Decision, record and command for scripts; nothing else on stdout."""
    found = json.loads(tune("--json").out)
    assert set(found) == {"decision", "validation", "command"}
    assert found["validation"]["said"] == "better"
    assert found["command"].startswith("vllm serve target")


def test_a_finished_run_measures_nothing_again(tune: Tune, run: Path, served: list[ArmCommand]) -> None:
    """The same command once more, with a budget or without: same samples, no server, same answer."""
    first = tune()
    samples, loads = RunDirectory.open(run).samples(), len(served)
    written = (run / "profile.json").stat().st_mtime_ns
    for words in ((), ("--budget", "10m")):
        again = tune(*words)
        assert (again.code, again.out.splitlines()[-1]) == (first.code, first.out.splitlines()[-1])
        assert RunDirectory.open(run).samples() == samples
        assert len(served) == loads
    assert (run / "profile.json").stat().st_mtime_ns >= written


def test_killed_in_the_sweep_it_goes_on(tune: Tune, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn is taken once, and no profile was left that rests on half a sweep."""
    with monkeypatch.context() as patch:
        measured, left = Watcher.measured, iter(range(9))

        def impatient(self: Watcher, sample: Any) -> None:
            measured(self, sample)
            if next(left, None) is None:
                raise KeyboardInterrupt

        patch.setattr(Watcher, "measured", impatient)
        stopped = tune()
    assert stopped.code != 0
    assert "the same command goes on from there" in " ".join(stopped.err.split())
    begun = RunDirectory.open(run).samples()
    assert len(begun) == 10
    assert not (run / "profile.json").exists()
    assert tune().code == 0
    samples = RunDirectory.open(run).samples()
    assert samples[:10] == begun
    assert max(Counter(map(Turn.of, samples)).values()) == 1


def test_killed_in_the_validation_it_goes_on_with_the_loads(
    tune: Tune, run: Path, served: list[ArmCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep is not touched, with a budget neither, and only loads that are missing are taken."""
    with monkeypatch.context() as patch:
        load, left = SimulatedClient.load, iter(range(10))

        def impatient(self: SimulatedClient, concurrency: int, start: int) -> Any:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return load(self, concurrency, start)

        patch.setattr(SimulatedClient, "load", impatient)
        stopped = tune("--budget", "10h")
    assert "The loads so far are kept" in stopped.err
    samples, before = RunDirectory.open(run).samples(), len(served)
    said = tune("--budget", "10h")
    assert said.code == 0
    assert RunDirectory.open(run).samples() == samples
    loads = formats.read_lines(formats.LOADS, run / "validation" / "loads.jsonl")
    assert len({(x.arm, x.start, x.concurrency) for x in loads}) == len(loads) == 27
    assert len(served) == before + 6


def test_a_longer_sweep_is_fitted_and_validated_anew(tune: Tune, cli: Any, run: Path) -> None:
    """Samples younger than the profile are fitted; another advice gets a validation of its own, beside the first."""
    assert tune().code == 0
    profile = formats.read(formats.PROFILE, run / "profile.json")
    formats.write(formats.PROFILE, run / "profile.json", replace(profile, created_at_s=0.0))
    assert tune("--concurrency", "1,4").code == 0
    newer = formats.read(formats.PROFILE, run / "profile.json")
    assert newer.created_at_s > profile.created_at_s
    assert newer.validation is not None
    assert newer.validation.request.concurrency == (1, 4)
    assert (run / "validation-2" / "validation.json").exists()


def test_what_servers_refute_is_not_printed(tune: Tune, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on which drafts cost more than in the sweep: exit code 4, and the line goes without speculation."""
    load = SimulatedClient.load

    def slow(self: SimulatedClient, concurrency: int, start: int) -> Any:
        found = load(self, concurrency, start)
        return found if self.arm is ServedArm.NO_SPEC else replace(found, tpot_s=2 * found.tpot_s)

    monkeypatch.setattr(SimulatedClient, "load", slow)
    said = tune()
    assert said.code == 4
    assert said.out.splitlines()[-1].startswith("vllm serve target")
    assert "--speculative-config" not in said.out.splitlines()[-1]
    assert "worse than no speculation" in said.out


def test_a_server_that_ignores_the_table_is_caught(tune: Tune, engine: dict[str, Any], run: Path) -> None:
    """Exit code 6 with the arm named, nothing in the profile, and the same again for whoever resumes."""
    engine["ignores_tables"] = True
    for _ in range(2):
        said = tune()
        assert said.code == 6
        assert "it ignores the table, or runs another" in said.err
        assert said.out == ""
    assert formats.read(formats.PROFILE, run / "profile.json").validation is None


def test_speculation_that_never_pays_is_proven_too(tune: Tune, engine: dict[str, Any]) -> None:
    """A law where drafts cost more than they bring: the fixed K does not beat no speculation on servers."""
    engine.update(law=FLAT, acceptance=(0.1, 0.05), noise=replace(CALM, start_sd=0.0005))
    said = tune()
    assert said.code == 4
    assert "no speculation is not beaten" in said.out
    assert "--speculative-config" not in said.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--concurrency", "1,64"), "concurrency 64 is beyond the profile's 16"),
        (("--concurrency", "few"), "--concurrency few is no list of whole numbers"),
        (("--held-out", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--budget", "10"), "'10' is no time to spend"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    tune: Tune, run: Path, words: tuple[str, ...], complaint: str
) -> None:
    """Nobody waits for a sweep to hear of a typing error in the validation's flags."""
    assert complaint in tune(*words).refused(2)
    assert not run.exists()
