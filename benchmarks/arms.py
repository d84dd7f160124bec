"""The arms that a profile can be served as, servers of them that are alive together, and whose turn it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from clients import free_port

from dsd_tune.engines.vllm_server import VllmServer, vllm_server
from dsd_tune.model.choices import NO_SPECULATION, TABLE
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.table import Table
from dsd_tune.runtime.costs import StepTimes
from dsd_tune.storage import formats


@dataclass(frozen=True, slots=True)
class Arm:
    """What a server gets besides the flags of the sweep: flags of its own, and variables of our plugin."""

    flags: Sequence[str] = ()
    runtime: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def serve(self, profile: Profile, log: Path) -> Iterator[VllmServer]:
        """A server of what the profile was measured on."""
        asked = profile.request
        assert asked is not None
        # What is sent again must cost again.
        shared = ["--max-num-seqs", str(asked.max_num_seqs), *asked.engine_flags, "--no-enable-prefix-caching"]
        with vllm_server(asked.model, [*shared, *self.flags], free_port(), log, runtime=self.runtime) as server:
            yield server


def speculating(profile: Profile, k: int, **more: object) -> list[str]:
    """The flag of an engine with the profile's drafter and up to `k` drafts."""
    assert profile.request is not None
    drafter = json.loads(profile.request.speculative_config)
    return ["--speculative-config", json.dumps(drafter | {"num_speculative_tokens": k} | more)]


def pasted(profile: Profile) -> dict[str, Arm]:
    """What needs nothing of ours inside the server: no speculation, the fixed K, and vLLM's own table."""
    decision = profile.decision
    assert decision.table is not None
    by_table = speculating(
        profile, decision.table.k_max, num_speculative_tokens_per_batch_size=decision.table.as_lists()
    )
    return {
        NO_SPECULATION: Arm(),
        f"K={decision.fixed_k}": Arm(speculating(profile, decision.fixed_k)),
        TABLE: Arm(by_table),
    }


def under_policy(profile: Profile, path: Path, policy: str) -> Arm:
    """The profile, written to `path`, applied by the plugin; the engine may use every K that was measured."""
    formats.write(formats.PROFILE, path, deployable(profile))
    return Arm(
        speculating(profile, max(StepTimes.of(profile).ks)), {"DSD_TUNE_PROFILE": str(path), "DSD_TUNE_POLICY": policy}
    )


def deployable(profile: Profile, table: Table | None = None) -> Profile:
    """The profile with a table to deploy, its own by default, whatever it advises: here it is put to the test."""
    chosen = table or profile.decision.table
    assert chosen is not None
    boundaries = profile.decision.boundaries if table is None else ()
    decision = replace(
        profile.decision,
        verdict=Verdict.TABLE,
        table=chosen,
        boundaries=boundaries,
    )
    return replace(profile, decision=decision)


@contextmanager
def sitting(profile: Profile, arms: Mapping[str, Arm], folder: Path) -> Iterator[dict[str, VllmServer]]:
    """A server of each arm, all alive together; their logs are in `folder`."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(arm.serve(profile, folder / f"{name.replace(' ', '-')}.log"))
            for name, arm in arms.items()
        }


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """A B B A A B ...: what drifts falls on all alike."""
    for number in range(rounds):
        yield from names if number % 2 == 0 else names[::-1]


def ratio(below: Sequence[float], above: Sequence[float]) -> Interval:
    """`above` over `below`, pair by pair: their geometric mean with its 95 % interval (Student's t, in logs).

    A single pair has an interval without bounds that mean anything, so at least two are needed.
    """
    from scipy.stats import t

    logs = np.log(above) - np.log(below)
    half = float(t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5)
    value, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]).tolist()
    return Interval(value, low, high)


def told(found: Interval) -> str:
    """An interval of a ratio in three decimals."""
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
