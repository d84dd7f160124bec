"""The runtime's two entrances into vLLM, with stand-ins for vLLM's side."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scheduling import FakeScheduler
from serving import a_fitting_profile, a_serving, a_vllm_config, write_profile

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.records.table import Table
from dsd_tune.runtime import hooks, options
from dsd_tune.runtime.application import Application
from dsd_tune.runtime.hooks import Starting, steered
from dsd_tune.runtime.options import Options
from dsd_tune.runtime.plugin import register
from dsd_tune.runtime.serving import Serving

TABLE = [(1, 4, 2), (5, 16, 0)]


@pytest.fixture(autouse=True)
def fitting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is served, to be changed by a test; nothing said yet."""
    changed: dict[str, Any] = {}
    monkeypatch.setattr(Serving, "of", lambda _config: a_serving(**changed))
    monkeypatch.setattr(options, "_said", set())
    monkeypatch.setattr(hooks, "measure", lambda _options: None)
    return changed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A profile that fits."""
    write_profile(tmp_path / "profile.json", a_fitting_profile())
    return tmp_path / "profile.json"


def start(options: Options, config: SimpleNamespace, *, dropped: bool = False) -> SimpleNamespace:
    """Create a configuration as vLLM does; gives back what it holds once complete."""
    starting = Starting(options)

    def complete() -> None:
        if dropped:
            config.speculative_config.num_speculative_tokens_per_batch_size = None

    def create() -> SimpleNamespace:
        starting.complete(config, complete)
        return config

    return starting.create(create)


def table_of(config: SimpleNamespace) -> object:
    """The table in a configuration."""
    return config.speculative_config.num_speculative_tokens_per_batch_size


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_fitting_profile_puts_its_table_into_the_configuration(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is there before vLLM completes it, when capture sizes still follow from it."""
    assert table_of(start(Options(path), a_vllm_config())) == TABLE
    assert warnings(caplog) == []


def test_a_policy_with_further_ks_gets_them(path: Path) -> None:
    """The K of the fixed policy is in the table that vLLM starts with."""
    profile = a_fitting_profile(Table.from_dense([1] * 4 + [0] * 12))
    write_profile(path, profile)
    assert table_of(start(Options(path, "fixed"), a_vllm_config())) == [(1, 4, 1), (5, 15, 0), (16, 16, 2)]


def test_a_table_of_the_users_own_stays(path: Path) -> None:
    """What the command line says is not overruled."""
    assert table_of(start(Options(path), a_vllm_config([(1, 16, 1)]))) == [(1, 16, 1)]


def test_views_of_a_configuration_are_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """vLLM makes more configurations from a complete one, in each of its processes: those are not judged again."""
    starting, config = Starting(Options(path)), a_vllm_config()
    starting.complete(config, lambda: None)
    assert table_of(config) is None
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("changed", "speculates", "dropped", "words"),
    [
        ({"k_max": 1}, True, False, "needs K=2"),
        ({}, False, False, "There is no speculation to apply it to"),
        ({}, True, True, "vLLM dropped its table"),
    ],
)
def test_a_profile_that_cannot_be_applied_costs_one_line(
    path: Path,
    caplog: pytest.LogCaptureFixture,
    fitting: dict[str, Any],
    changed: dict[str, Any],
    words: str,
    *,
    speculates: bool,
    dropped: bool,
) -> None:
    """vLLM starts as without it, and the log says once why; strictness refuses to start instead."""
    fitting.update(changed)
    for _ in range(2):
        config = start(Options(path), a_vllm_config(speculates=speculates), dropped=dropped)
        assert not speculates or table_of(config) is None
    assert len(warnings(caplog)) == 1
    assert words in warnings(caplog)[0]
    assert f"{path} is not applied; vLLM runs as without it." in warnings(caplog)[0]
    with pytest.raises(ProfileMismatch, match=words):
        start(Options(path, strict=True), a_vllm_config(speculates=speculates), dropped=dropped)


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"format": "dsd-tune profile", "version": 99}'])
def test_a_broken_profile_costs_one_line(path: Path, caplog: pytest.LogCaptureFixture, text: str | None) -> None:
    """Missing, empty, damaged, another kind, or of a newer dsd-tune: vLLM starts without it."""
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert table_of(start(Options(path), a_vllm_config())) is None
    assert len(warnings(caplog)) == 1
    with pytest.raises(UsageError):
        start(Options(path, strict=True), a_vllm_config())


def test_an_unknown_policy_costs_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A typing error in DSD_TUNE_POLICY is named with the policies that there are."""
    assert table_of(start(Options(path, "tables"), a_vllm_config())) is None
    assert ["DSD_TUNE_POLICY=tables is no policy" in line for line in warnings(caplog)] == [True]


def test_a_surprise_inside_vllm_is_caught(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vLLM whose configuration looks different is left alone, and the error is shown."""
    monkeypatch.setattr(Serving, "of", lambda config: config.no_such_field)
    assert table_of(start(Options(path), a_vllm_config())) is None
    assert ["AttributeError" in line for line in warnings(caplog)] == [True]


def test_what_vllm_raises_is_vllms(path: Path) -> None:
    """An error of vLLM's own while it completes its configuration passes through."""
    starting = Starting(Options(path))

    def complete() -> None:
        raise RuntimeError("vLLM's own")

    with pytest.raises(RuntimeError, match="vLLM's own"):
        starting.create(partial(starting.complete, a_vllm_config(), complete))


def test_a_scheduler_is_steered_by_the_profile(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The class behaves like vLLM's, its steps get the profile's K, and the log shows the lookup."""
    caplog.set_level(logging.INFO)
    scheduler = steered(FakeScheduler, Options(path))([0, 0] + [2] * 15)
    assert isinstance(scheduler, FakeScheduler)
    scheduler.add("a", 1)
    assert scheduler.step({"a": 1}).num_spec_tokens_to_schedule == 2
    assert f"{path} is applied: policy table, K by batch size: 1-4: 2, 5-16: 0" in caplog.text


def test_a_scheduler_without_a_table_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Why there is none was said where the configuration was made."""
    scheduler = steered(FakeScheduler, Options(path))(None)
    assert "update_from_output" not in vars(scheduler)
    assert warnings(caplog) == []


def test_a_scheduler_with_other_ks_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A table of the user's own without the profile's Ks stays in force."""
    scheduler = steered(FakeScheduler, Options(path))([0, 1, 0])
    assert "update_from_output" not in vars(scheduler)
    assert ["has the Ks 0, 2, and the engine was started for 0, 1" in line for line in warnings(caplog)] == [True]


def ks(scheduler: FakeScheduler) -> list[int]:
    """K for one, and for eight requests."""
    for name in "abcdefgh":
        scheduler.add(name, 1)
    return [scheduler.step(dict.fromkeys(names, 1)).num_spec_tokens_to_schedule for names in ("a", "abcdefgh")]


def renew(scheduler: FakeScheduler) -> None:
    """Let time pass until a replaced profile must have been read, and make the step that takes it."""
    renewal = scheduler._update_after_schedule.__self__._renew.__self__
    renewal._due = 0.0
    scheduler.step({})
    if renewal._reader:
        renewal._reader.join()
    scheduler.step({})


def test_a_replaced_profile_takes_over(path: Path) -> None:
    """A hundred times in a row, the step after the new file was read has its K."""
    scheduler = steered(FakeScheduler, Options(path))([0] * 9 + [2] * 8)
    for dense in [[0] * 4 + [2] * 12, [2] * 4 + [0] * 12] * 50:
        write_profile(path, a_fitting_profile(Table.from_dense(dense)))
        renew(scheduler)
        assert ks(scheduler) == [dense[0], dense[7]]


def test_a_profile_replaced_while_it_is_first_read_takes_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as a new one, though the engine has never seen the file in between."""
    of = Application.of

    def read_slowly(config: object, options: Options) -> Application:
        application = of(config, options)
        write_profile(path, a_fitting_profile(Table.from_dense([0] * 4 + [2] * 12)))
        return application

    monkeypatch.setattr(Application, "of", read_slowly)
    scheduler = steered(FakeScheduler, Options(path))([0] * 9 + [2] * 8)
    monkeypatch.setattr(Application, "of", of)
    renew(scheduler)
    assert ks(scheduler) == [0, 2]


@pytest.mark.parametrize(
    ("dense", "words"), [(None, "is damaged"), ([1] * 4 + [0] * 12, "the engine was started for 0, 2")]
)
def test_a_replacement_that_does_not_fit_changes_nothing(
    path: Path,
    caplog: pytest.LogCaptureFixture,
    dense: list[int] | None,
    words: str,
) -> None:
    """A damaged file or one with other Ks is told once, and the old profile goes on."""
    scheduler = steered(FakeScheduler, Options(path))([0] * 9 + [2] * 8)
    if dense is None:
        path.write_text('{"format": "dsd-tune profile", "version": 2}')
    else:
        write_profile(path, a_fitting_profile(Table.from_dense(dense)))
    for _ in range(3):
        renew(scheduler)
        assert ks(scheduler) == [2, 0]
    assert [words in line and "what ran before goes on" in line for line in warnings(caplog)] == [True]


def test_a_replacement_with_another_fixed_k_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fixed K that the engine was not started for is refused as a table is, and what ran before goes on."""
    scheduler = steered(FakeScheduler, Options(path, "fixed"))([0] * 9 + [2] * 8)
    profile = a_fitting_profile()
    write_profile(path, replace(profile, decision=replace(profile.decision, fixed_k=1)))
    renew(scheduler)
    assert ks(scheduler) == [2, 2]
    assert ["fixed K is 1" in line and "what ran before goes on" in line for line in warnings(caplog)] == [True]


def test_the_environment_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is the policy unless another is named, and a strictness of 0 is none."""
    monkeypatch.setenv("DSD_TUNE_PROFILE", "p.json")
    monkeypatch.setenv("DSD_TUNE_STRICT", "0")
    monkeypatch.setenv("DSD_TUNE_POLICY", "")
    assert Options.from_environment() == Options(Path("p.json"), "table", strict=False)
    monkeypatch.setenv("DSD_TUNE_STRICT", "1")
    monkeypatch.setenv("DSD_TUNE_POLICY", "goodput")
    assert Options.from_environment() == Options(Path("p.json"), "goodput", strict=True)


def test_a_vllm_without_the_hooks_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the plugin cannot enter it says so; strict, it stops vLLM."""

    def fail(_options: Options) -> None:
        raise ImportError("no such class")

    monkeypatch.setattr(hooks, "install", fail)
    monkeypatch.setenv("DSD_TUNE_PROFILE", "profile.json")
    register()
    assert ["no such class" in line for line in warnings(caplog)] == [True]
    monkeypatch.setenv("DSD_TUNE_STRICT", "1")
    with pytest.raises(ImportError):
        register()


def test_the_idle_plugin_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a profile vLLM is not touched, whatever else is set."""
    monkeypatch.delenv("DSD_TUNE_PROFILE", raising=False)
    monkeypatch.setenv("DSD_TUNE_STRICT", "1")
    monkeypatch.setattr(hooks, "install", pytest.fail)
    register()
