"""The runtime's pieces without vLLM: policies, the lookup that stands in for vLLM's, the plugin."""

from types import SimpleNamespace

import pytest

from dsd_tune.records.table import Table
from dsd_tune.runtime.lookup import PolicyLookup, install
from dsd_tune.runtime.plugin import register
from dsd_tune.runtime.policy import FixedPolicy, TablePolicy

TABLE = Table.from_dense([3, 3, 1, 0])


def test_a_table_policy_says_what_the_table_says() -> None:
    """Inside the table, K is the table's own at every batch size."""
    policy = TablePolicy(TABLE)
    assert [policy.k(b) for b in range(1, 5)] == list(TABLE.dense())


def test_a_table_policy_carries_the_last_k_on() -> None:
    """Past the table's end the last K holds, as in vLLM with a larger max_num_seqs."""
    assert TablePolicy(Table.from_dense([2, 1])).k(99) == 1


def test_a_table_policy_never_raises() -> None:
    """A batch size that cannot occur gets K=0 instead of an exception inside somebody's server."""
    assert [TablePolicy(TABLE).k(b) for b in (0, -1)] == [0, 0]


def test_a_fixed_policy_can_be_changed_between_steps() -> None:
    """The sweep switches K by assigning to the policy that is already installed."""
    policy = FixedPolicy(0)
    lookup = PolicyLookup(policy)
    before = lookup[7]
    policy.value = 4
    assert (before, lookup[7]) == (0, 4)


def test_install_replaces_the_lookup_of_a_table() -> None:
    """A scheduler started with a table follows the policy afterwards."""
    scheduler = SimpleNamespace(dynamic_sd_lookup=[0, 3, 3])
    assert install(scheduler, FixedPolicy(2))
    assert [scheduler.dynamic_sd_lookup[b] for b in (1, 2, 50)] == [2, 2, 2]


@pytest.mark.parametrize("scheduler", [SimpleNamespace(dynamic_sd_lookup=None), SimpleNamespace()])
def test_install_leaves_an_engine_without_a_table_alone(scheduler: SimpleNamespace) -> None:
    """An engine without a table, or too old for one, is not touched."""
    before = dict(vars(scheduler))
    assert not install(scheduler, FixedPolicy(2))
    assert vars(scheduler) == before


def test_the_plugin_says_that_a_profile_is_not_applied(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who sets a profile learns from the log that K does not follow it, and what works instead."""
    monkeypatch.setenv("DSD_TUNE_PROFILE", "profile.json")
    register()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "profile.json" in caplog.text
    assert "emit-config" in caplog.text
