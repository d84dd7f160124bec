"""A profile and a vLLM that fit each other: what vLLM starts with, and which Ks a policy may choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import AStep, a_validation
from serving import a_fitting_profile, a_serving, with_step_times, write_profile

from dsd_tune.errors import ProfileMismatch
from dsd_tune.records.comparison import Said
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table
from dsd_tune.records.validation import ServedArm
from dsd_tune.runtime.application import Application
from dsd_tune.runtime.options import Options
from dsd_tune.runtime.policies.choice import PolicyName
from dsd_tune.runtime.serving import Serving


def application(table: Table, *wanted: int) -> Application:
    """A table whose policy also wants other Ks."""
    return Application(a_fitting_profile(table), table, PolicyName.ROTATE, table.ks | set(wanted))


def test_vllm_starts_with_the_table_itself() -> None:
    """Where the policy needs no other Ks, vLLM's own lookup is the profile's table."""
    table = Table.from_dense([2, 2, 0])
    assert application(table).table_to_start_with() == table


def test_further_ks_stand_at_the_far_end() -> None:
    """Each K that only the policy uses gets a batch size, and no K of the table loses its last one."""
    table = Table.from_dense([3, 3, 3, 3, 0])
    assert application(table, 1, 2).table_to_start_with().dense() == (3, 3, 1, 2, 0)


def test_ks_without_room_are_left_out() -> None:
    """A small server cannot have them all."""
    assert application(Table.from_dense([3, 0]), 1, 2).table_to_start_with().dense() == (3, 0)


def test_an_engine_started_for_other_ks_is_refused() -> None:
    """The message names both sets."""
    with pytest.raises(ProfileMismatch, match=r"has the Ks 0, 2, and the engine was started for 0, 1\. Restart vLLM"):
        application(Table.from_dense([2, 0])).guard(frozenset({0, 1}), pytest.fail)


def test_a_fixed_k_that_the_engine_lacks_is_refused() -> None:
    """The policy has no other K to choose, and says so before the first step."""
    table = Table.from_dense([1, 0])
    fixed = Application(a_fitting_profile(table), table, PolicyName.FIXED, frozenset({0, 1, 2}))
    assert fixed.guard(frozenset({0, 1, 2}), pytest.fail).k(AStep(1)) == 2
    with pytest.raises(ProfileMismatch, match=r"fixed K is 2, and this engine can choose among 0, 1\. Restart vLLM"):
        fixed.guard(frozenset({0, 1, 7}), pytest.fail)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the profile is."""
    return tmp_path / "profile.json"


def applied(path: Path, profile: Profile, policy: str, monkeypatch: pytest.MonkeyPatch, **serving: Any) -> Application:
    """The profile, read by a vLLM that serves like that."""
    write_profile(path, profile)
    monkeypatch.setattr(Serving, "of", lambda _config: a_serving(**serving))
    return Application.of(None, Options(path, policy))


@pytest.mark.parametrize("policy", [PolicyName.GOODPUT, PolicyName.ROTATE])
@pytest.mark.parametrize(("version", "chooses_zero"), [("0.31.0", False), ("0.32.0", True), ("dev", False)])
def test_a_measured_zero_is_kept_from_recurrent_layers_too(
    path: Path, monkeypatch: pytest.MonkeyPatch, policy: PolicyName, version: str, *, chooses_zero: bool
) -> None:
    """Where K=0 corrupts the output, no policy starts vLLM with it or chooses it, measured and best though it is."""
    fitting = a_fitting_profile(Table.from_dense([3] * 8 + [1] * 24), vllm_version=version)
    profile = with_step_times(fitting, {0: 0.01, 1: 0.02}, (1, 32))
    serving = {"vllm_version": version, "loses_state": True, "k_max": 3, "max_num_seqs": 32}
    one = applied(path, profile, policy, monkeypatch, **serving)
    guard = one.guard(frozenset({0, 1, 3}), pytest.fail)
    assert (0 in one.table_to_start_with().ks) == chooses_zero
    assert (0 in [guard.k(AStep(size)) for size in range(1, 33) for _ in range(9)]) == chooses_zero


def test_a_table_that_servers_refuted_is_not_applied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sets the profile of a refuted table learns what servers said; policies that they did not try are free."""
    fitting = a_fitting_profile(Table.from_dense([3] * 8 + [1] * 24))
    record = a_validation(ServedArm.TABLE, Said.WORSE, {ServedArm.TABLE: Said.WORSE})
    profile = replace(with_step_times(fitting, {0: 0.01, 1: 0.02}, (1, 32)), validation=record)
    serving = {"k_max": 3, "max_num_seqs": 32}
    with pytest.raises(
        ProfileMismatch, match=r"turn speculation off \(on servers, .*\)\. Leave --speculative-config out"
    ):
        applied(path, profile, PolicyName.TABLE, monkeypatch, **serving)
    assert applied(path, profile, PolicyName.GOODPUT, monkeypatch, **serving).policy is PolicyName.GOODPUT
