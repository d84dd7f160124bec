"""`dsd-tune validate` on simulated servers: what is served, what is refused, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_host import SimulatedClient, lay
from sweeping import fitted, swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.records.configured import Configured
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.records.validation import ArmCommand, ServedArm
from dsd_tune.storage import formats
from dsd_tune.storage.fingerprint import drafter_digest, model_digest
from dsd_tune.storage.prompts import load_prompts

GOOD, BAD = Table.from_dense([2] * 2 + [1] * 2 + [0] * 12), Table.from_dense([0] * 4 + [2] * 12)
ENGINE = SimulatedEngine(
    CostLaw(critical_tokens=8, slope_s=0.01),
    (0.8, 0.7),
    noise=Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.01),
    max_num_seqs=16,
    alive_together=8,
)

Validate = Callable[..., Any]


@pytest.fixture(scope="module")
def measured() -> Profile:
    """A sweep whose best table is `GOOD`."""
    return fitted(swept(ENGINE, starts=3))


@pytest.fixture
def folder(tmp_path: Path, measured: Profile) -> Path:
    """A drafter, prompts and the profile of a sweep with both."""
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Why?"}\n{"prompt": "How?"}\n')
    config = {"method": "eagle", "model": str(tmp_path / "drafter")}
    assert measured.request
    assert measured.environment
    profile = replace(
        measured,
        request=replace(measured.request, model="target", speculative_config=json.dumps(config)),
        environment=replace(
            measured.environment,
            model="target",
            model_digest=model_digest("target"),
            drafter_digest=drafter_digest(config),
            method="eagle",
        ),
    )
    _write(tmp_path, profile, GOOD)
    return tmp_path


def _write(folder: Path, profile: Profile, table: Table) -> None:
    decision = replace(profile.decision, verdict=Verdict.TABLE, table=table, fixed_k=1)
    formats.write(formats.PROFILE, folder / "profile.json", replace(profile, decision=decision))


def _read(folder: Path) -> Profile:
    return formats.read(formats.PROFILE, folder / "profile.json")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ArmCommand]:
    """Simulated servers in vLLM's place, and every command that one was started with."""
    commands: list[ArmCommand] = []
    lay(monkeypatch, ENGINE, commands)
    return commands


@pytest.fixture
def validate(cli: Any, folder: Path, served: list[ArmCommand]) -> Validate:
    """Runs `dsd-tune validate` on the profile with its prompts and the given words."""
    return lambda *words: cli("validate", folder / "profile.json", "--prompts", folder / "prompts.jsonl", *words)


def test_a_good_table_is_proven(validate: Validate, folder: Path, served: list[ArmCommand]) -> None:
    """Exit code 0, three arms three times each, and a record that `emit-config` knows of."""
    said = validate()
    assert said.code == 0, said.err
    assert "table is better than no speculation" in said.out
    assert len(served) == 9
    record = _read(folder).validation
    assert record is not None
    assert record.request.concurrency == (1, 4, 16)


def test_a_table_that_was_swapped_for_a_bad_one_is_refuted(validate: Validate, cli: Any, folder: Path) -> None:
    """Drafts where they cost most: exit code 4, and from then on `emit-config` has the fixed K, which pays."""
    _write(folder, _read(folder), BAD)
    said = validate()
    assert said.code == 4
    assert "table is worse than no speculation, and fixed K is better than both" in said.out
    emitted = cli("emit-config", folder / "profile.json")
    assert emitted.code == 0
    assert '"num_speculative_tokens":1}' in emitted.out
    assert "fixed K is better than both" in emitted.err


@pytest.mark.parametrize(
    "words", [("--starts", "1"), ("--url", "http://localhost:1", "--label", "fixed_k")], ids=["shorter", "first call"]
)
def test_a_run_that_cannot_tell_erases_no_refutation(
    validate: Validate, cli: Any, folder: Path, words: tuple[str, ...]
) -> None:
    """It ends with 5 and says what the profile keeps; `emit-config` prints the same as before."""
    profile = _read(folder)
    decision = replace(profile.decision, table=BAD, fixed_k=2)
    formats.write(formats.PROFILE, folder / "profile.json", replace(profile, decision=decision))
    assert validate().code == 4
    record, emitted = _read(folder).validation, cli("emit-config", folder / "profile.json")
    said = validate(*words, "--concurrency", "4")
    assert said.code == 5
    assert "These loads cannot tell. The profile keeps the record it had: table is worse than" in said.err
    assert _read(folder).validation == record
    assert cli("emit-config", folder / "profile.json") == emitted


def test_servers_tell_what_the_sweep_could_not(validate: Validate, cli: Any, folder: Path) -> None:
    """Where the sweep was left in doubt and the table wins on servers, `emit-config` agrees with `validate`."""
    profile = _read(folder)
    decision = replace(profile.decision, verdict=Verdict.UNCLEAR)
    formats.write(formats.PROFILE, folder / "profile.json", replace(profile, decision=decision))
    assert validate().code == 0
    emitted = cli("emit-config", folder / "profile.json")
    assert emitted.code == 0
    assert "num_speculative_tokens_per_batch_size" in emitted.out


def test_where_nothing_pays_speculation_is_left_out(
    validate: Validate, cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers on which drafts cost more than in the sweep: exit code 4 from both commands, and no fixed K either."""
    load = SimulatedClient.load

    def slow(self: SimulatedClient, concurrency: int, start: int) -> Any:
        found = load(self, concurrency, start)
        return found if self.arm is ServedArm.NO_SPEC else replace(found, tpot_s=3 * found.tpot_s)

    monkeypatch.setattr(SimulatedClient, "load", slow)
    assert validate().code == 4
    emitted = cli("emit-config", folder / "profile.json")
    assert emitted.code == 4
    assert "--speculative-config" not in emitted.out
    assert "on servers, table is worse than no speculation" in emitted.err


def test_a_drafter_that_was_replaced_is_refused(validate: Validate, folder: Path, served: list[ArmCommand]) -> None:
    """Other weights under the same name: exit code 6 before a server is started, and the folder is named."""
    (folder / "drafter" / "model.safetensors").write_bytes(b"retrained")
    said = validate().refused(6)
    assert str(folder / "drafter") in said
    assert "The drafter" in said
    assert served == []


def test_a_model_that_was_replaced_is_refused(validate: Validate, folder: Path) -> None:
    """The same of the target."""
    profile = _read(folder)
    assert profile.environment
    _write(folder, replace(profile, environment=replace(profile.environment, model_digest="another")), GOOD)
    assert "The model (target) is not the one" in validate().refused(6)


def test_a_self_check_leaves_the_record_alone(validate: Validate, folder: Path, served: list[ArmCommand]) -> None:
    """Twins are the same, which says nothing of the advice: the profile keeps what servers said of that."""
    assert validate().code == 0
    before = _read(folder).validation
    said = validate("--self-check")
    assert said.code == 0
    assert "no speculation again is the same as no speculation" in said.out
    assert {command.arm for command in served[9:]} == {ServedArm.NO_SPEC, ServedArm.NO_SPEC_TWIN}
    assert _read(folder).validation == before


def test_a_policy_is_one_more_server(validate: Validate, folder: Path, served: list[ArmCommand]) -> None:
    """It serves the table's command with the plugin's variables, and does not start where the plugin refuses."""
    assert validate("--policy", "goodput", "--starts", "1", "--concurrency", "4").code == 5
    table, policy = (next(c for c in served if c.arm is arm) for arm in (ServedArm.TABLE, ServedArm.POLICY))
    assert table.arguments == policy.arguments
    profile = str(folder / "profile.json")
    variables = {"DSD_TUNE_PROFILE": profile, "DSD_TUNE_POLICY": "goodput", "DSD_TUNE_STRICT": "1"}
    assert dict(policy.environment) == variables


def test_a_policy_needs_a_table_that_is_advised(validate: Validate, folder: Path) -> None:
    """The runtime would refuse the profile, and the arm would be another one twice."""
    profile = _read(folder)
    decision = replace(profile.decision, verdict=Verdict.FIXED)
    formats.write(formats.PROFILE, folder / "profile.json", replace(profile, decision=decision))
    assert "--policy needs a profile that advises a table" in validate("--policy", "hysteresis").refused(2)


def test_an_unknown_policy_is_refused(validate: Validate) -> None:
    """By the parser, which lists them."""
    said = validate("--policy", "greedy")
    assert said.code == 2
    assert "hysteresis" in said.err


def test_a_running_server_is_loaded_once_more_each_time(validate: Validate, folder: Path) -> None:
    """Two calls under one label are two starts of that arm."""
    profile = _read(folder)
    _write(folder, replace(profile, decision=replace(profile.decision, fixed_k=2)), GOOD)
    formats.write(
        formats.PROFILE,
        folder / "profile.json",
        replace(profile, decision=replace(profile.decision, table=GOOD, fixed_k=2)),
    )
    for start in range(2):
        assert validate("--url", "http://localhost:1", "--label", "fixed_k", "--concurrency", "4").code == 5
        loads = formats.read_lines(formats.LOADS, folder / "validation" / "loads.jsonl")
        assert [load.start for load in loads] == list(range(start + 1))


def test_a_running_server_under_a_wrong_label_is_refused(validate: Validate, folder: Path) -> None:
    """It drafts two tokens and is said not to speculate; the load is not kept, so the mistake can be mended."""
    said = validate("--url", "http://localhost:1", "--label", "no_spec", "--concurrency", "4")
    assert said.code == 6
    assert "it speculates" in said.err
    assert formats.read_lines(formats.LOADS, folder / "validation" / "loads.jsonl") == []


def test_loads_that_could_not_show_a_table_that_is_ignored_are_named(validate: Validate) -> None:
    """At 1 at a time the table drafts its largest K, as a server without it would; at 4 it drafts less."""
    words = "the table drafts 2 in all these loads, as a server that ignores it would; load it with 3 or more at a time"
    assert words in " ".join(validate("--concurrency", "1").out.split())
    assert "as a server that ignores it would" not in " ".join(validate("--concurrency", "1,4").out.split())


def test_texts_of_the_sweep_are_named(validate: Validate, folder: Path) -> None:
    """Prompts that the sweep saw are no proof for others; held-out ones need no word."""
    from dsd_tune.storage.fingerprint import prompts_digest

    assert "the texts are those of the sweep" not in " ".join(validate().out.split())
    profile = _read(folder)
    assert profile.environment
    digest = prompts_digest(load_prompts(folder / "prompts.jsonl"))
    _write(folder, replace(profile, environment=replace(profile.environment, prompts_digest=digest)), GOOD)
    assert "the texts are those of the sweep" in " ".join(validate().out.split())


def test_the_condition_that_was_tried_is_named(validate: Validate, folder: Path) -> None:
    """A sweep under several is advised by their mean, and servers run the first; of a single one there is no word."""
    words = ("--concurrency", "4", "--starts", "1")
    assert "under one condition" not in " ".join(validate(*words).out.split())
    profile = _read(folder)
    assert profile.request
    several = replace(profile.request, contexts=(512, 4096), temperatures=(0.0, 0.7))
    formats.write(formats.PROFILE, folder / "profile.json", replace(profile, request=several))
    said = " ".join(validate(*words).out.split())
    assert "under one condition, temperature 0 and texts of up to 256 output tokens" in said
    assert "the sweep had several (contexts 512, 4096; temperatures 0, 0.7)" in said


def test_another_vllm_than_the_sweeps_is_named_and_loads_of_two_are_not_mixed(
    validate: Validate, folder: Path, served: list[ArmCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is foretold is of the sweep's vLLM; more starts under another one are refused, and nothing is kept."""
    words = ("--concurrency", "4", "--starts")
    lay(monkeypatch, ENGINE, served, vllm_version="0.99.0")
    assert "servers ran vLLM 0.99.0, and the sweep" in " ".join(validate(*words, "1").out.split())
    lay(monkeypatch, ENGINE, served, vllm_version="0.99.1")
    said = validate(*words, "2")
    assert said.code == 6
    assert "is vLLM 0.99.1, and loads so far are of 0.99.0" in " ".join(said.err.split())
    assert len(formats.read_lines(formats.LOADS, folder / "validation" / "loads.jsonl")) == 3


def test_another_load_does_not_overwrite_the_first(validate: Validate, folder: Path) -> None:
    """Without -o each request has a directory; the same one goes on in its own."""
    for words in (("--concurrency", "1"), ("--concurrency", "4"), ("--concurrency", "1")):
        assert validate(*words).code == 0
    assert sorted(p.parent.name for p in folder.glob("*/validation.json")) == ["validation", "validation-2"]


@pytest.mark.parametrize("named", [False, True], ids=["beside the profile", "with -o"])
def test_more_starts_go_on_where_fewer_ended(
    validate: Validate, folder: Path, served: list[ArmCommand], *, named: bool
) -> None:
    """Only what is missing is served, in the same directory; fewer starts than were taken use them all."""
    out = folder / ("elsewhere" if named else "validation")
    where = ("-o", out) if named else ()
    for starts, servers in ((1, 3), (3, 9), (2, 9)):
        assert validate(*where, "--concurrency", "4", "--starts", starts).code == (5 if starts == 1 else 0)
        assert len(served) == servers
    record = _read(folder).validation
    assert record is not None
    assert (record.request.starts, record.loads) == (3, 9)
    assert formats.read(formats.VALIDATION, out / "validation.json") == record.request
    assert [p.parent.name for p in folder.glob("*/validation.json")] == [out.name]


def test_an_interrupted_call_to_a_running_server_goes_on(
    validate: Validate, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command takes the loads that its start lacks; the next one is another start."""
    _write(folder, replace(_read(folder), validation=None), GOOD)
    decision = replace(_read(folder).decision, fixed_k=2)
    formats.write(formats.PROFILE, folder / "profile.json", replace(_read(folder), decision=decision))
    words = ("--url", "http://localhost:1", "--label", "fixed_k", "--concurrency", "1,4")
    with monkeypatch.context() as patch:
        load = SimulatedClient.load

        def impatient(self: SimulatedClient, concurrency: int, start: int) -> Any:
            if concurrency == 4:
                raise KeyboardInterrupt
            return load(self, concurrency, start)

        patch.setattr(SimulatedClient, "load", impatient)
        assert "the same command goes on from there" in " ".join(validate(*words).err.split())
    for _ in range(2):
        assert validate(*words).code == 5
    loads = formats.read_lines(formats.LOADS, folder / "validation" / "loads.jsonl")
    assert [(load.start, load.concurrency) for load in loads] == [(0, 1), (0, 4), (1, 1), (1, 4)]


def _able(**changed: Any) -> Configured:
    known: dict[str, Any] = dict.fromkeys(Configured.__dataclass_fields__, 1)
    return Configured(**{**known, "runner": "v2", **changed})


def test_adaptive_verification_is_an_arm_where_vllm_has_it(
    validate: Validate, served: list[ArmCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server has the largest K of the table, no table, and vLLM's switch."""
    asked: list[Any] = []
    monkeypatch.setattr("dsd_tune.cli.adaptive.configure", lambda *words: asked.append(words) or _able())
    assert validate("--adaptive-verification", "--starts", "1", "--concurrency", "4").code == 5
    (command,) = [c for c in served if c.arm is ServedArm.ADAPTIVE]
    config = json.loads(command.arguments[command.arguments.index("--speculative-config") + 1])
    assert config["enable_adaptive_verification"] is True
    assert config["num_speculative_tokens"] == 2
    assert "num_speculative_tokens_per_batch_size" not in config
    assert asked[0][1] == config


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (EnvironmentUnfit("It requires full CUDA graphs.", "Do."), "cannot run here: It requires full CUDA graphs."),
        (_able(runner="v1"), "a matter of model runner V2, and V1 would serve"),
    ],
    ids=["refused", "another runner"],
)
def test_adaptive_verification_is_refused_with_the_reason(
    validate: Validate, served: list[ArmCommand], monkeypatch: pytest.MonkeyPatch, answer: Any, complaint: str
) -> None:
    """Exit code 3 before a server is started, and how to go on."""

    def configure(*_: Any) -> Configured:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("dsd_tune.cli.adaptive.configure", configure)
    said = validate("--adaptive-verification").refused(3)
    assert complaint in said
    assert "Leave --adaptive-verification out." in said
    assert served == []
