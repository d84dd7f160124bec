"""A profile and a vLLM configuration that fit each other: what to start with, and who then decides about K."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsd_tune.errors import ProfileMismatch
from dsd_tune.records.profile import Profile
from dsd_tune.records.proven import proven
from dsd_tune.records.table import Table
from dsd_tune.runtime.fitting import fitting_table, possible_ks
from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.options import Options
from dsd_tune.runtime.policies.choice import PolicyName
from dsd_tune.runtime.serving import Serving
from dsd_tune.storage import formats


@dataclass(frozen=True, slots=True)
class Application:
    """`table` is the profile's, as far as vLLM's batches reach; `wanted_ks` are those that the policy may choose."""

    profile: Profile
    table: Table
    policy: PolicyName
    wanted_ks: frozenset[int]

    @classmethod
    def of(cls, config: Any, options: Options) -> Application:
        """Read the profile and make sure that it fits a `VllmConfig`.

        Raises:
            DsdTuneError: it does not, it cannot be read, or there is no such policy.
        """
        policy = PolicyName.parse(options.policy)
        serving = Serving.of(config)
        profile = formats.read(formats.PROFILE, options.profile)
        if policy is PolicyName.TABLE:
            # What servers found of the table says nothing of other policies.
            profile = proven(profile)
        table = fitting_table(profile, serving)
        wanted = policy.wanted_ks(profile, table) & possible_ks(serving)
        policy.make(profile, table, wanted)
        return cls(profile, table, policy, wanted)

    def table_to_start_with(self) -> Table:
        """The table, with the Ks that only the policy uses at its far end.

        vLLM prepares for the Ks of its own table, up to the largest batch size that has each. What it looks up there is
        never used: the policy decides, and behind it the table proper.
        """
        dense = list(self.table.dense())
        for k in sorted(self.wanted_ks - self.table.ks, reverse=True):
            spare = [i for i, old in enumerate(dense) if old in self.table.ks and dense.count(old) > 1]
            if spare:
                dense[spare[-1]] = k
        return Table.from_dense(dense)

    def guard(self, engine_ks: frozenset[int], say: Callable[[str], None]) -> Guard:
        """The policy, new and guarded, for an engine that was started for `engine_ks`.

        Raises:
            ProfileMismatch: the table or the policy needs others.
        """
        if not self.table.ks <= engine_ks:
            raise ProfileMismatch(
                f"Its table has the Ks {_listed(self.table.ks)}, and the engine was started for {_listed(engine_ks)}.",
                "Restart vLLM to use it.",
            )
        policy = self.policy.make(self.profile, self.table, self.wanted_ks & engine_ks)
        return Guard(policy, engine_ks, (0, *self.table.dense()), say)

    def __str__(self) -> str:
        ranges = ", ".join(f"{r.first}-{r.last}: {r.k}" for r in self.table.ranges)
        return f"policy {self.policy}, K by batch size: {ranges}"


def _listed(ks: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ks)))
