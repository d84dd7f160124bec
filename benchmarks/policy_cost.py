"""What the runtime adds to a step of vLLM's engine: `python benchmarks/policy_cost.py`, microseconds by batch size.

Everything that runs in the engine's loop is timed, on a stand-in for the scheduler whose own part is subtracted: the
view of the step, the policy behind its guard, the look for a new profile, and the count of what was accepted. One
request in eight is still prefilling, and drafts are accepted at random.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from builders import a_profile
from scheduling import FakeRequest

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, PositionAcceptance, Profile
from dsd_tune.records.table import Table
from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.policies.choice import PolicyName
from dsd_tune.runtime.renewal import Renewal
from dsd_tune.runtime.steering import steer

SIZES = (1, 32, 256, 1024)
K_MAX = 5
STEPS = 200
REPEATS = 15
TABLE = Table.from_dense([5] * 32 + [3] * 96 + [1] * 384 + [0] * 512)


class Idle:
    """A scheduler that does nothing in a step, so that only what is added takes time."""

    def __init__(self, requests: dict[str, FakeRequest]) -> None:
        self.requests = requests

    def _update_after_schedule(self, output: SimpleNamespace) -> None:
        pass

    def update_from_output(self, scheduler_output: SimpleNamespace, model_runner_output: SimpleNamespace) -> None:
        """Do nothing."""


def a_measured_profile() -> Profile:
    """Step times at every anchor and K, and acceptance at every position."""
    one = Interval(0.1, 0.05, 0.15)
    cells = tuple(
        CellEstimate(Cell(Arm.DSD, size, k), Interval(1 + size * k, 1, 1e6), one, one, 2, 4, 0.9)
        for size in (1, 4, 16, 64, 256, 1024)
        for k in range(K_MAX + 1)
    )
    rates = tuple(PositionAcceptance(i + 1, Interval(0.8**i, 0, 1)) for i in range(K_MAX))
    return a_profile(cells=cells, acceptance=rates)


def a_step(size: int, random: Random) -> tuple[dict[str, FakeRequest], SimpleNamespace, SimpleNamespace]:
    """Requests, what was scheduled of them, and what came out."""
    names = [f"request-{i}" for i in range(size)]
    prefilling = set(names[: size // 8])
    requests = {name: FakeRequest(900 if name in prefilling else 101, 100) for name in names}
    output = SimpleNamespace(
        num_scheduled_tokens=dict.fromkeys(names, 1 + K_MAX),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in prefilling],
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        scheduled_spec_decode_tokens={name: [-1] * K_MAX for name in names if name not in prefilling},
    )
    sampled = [[7] * random.randint(1, 1 + K_MAX) for _ in names]
    return requests, output, SimpleNamespace(sampled_token_ids=sampled)


def timed(step: Callable[[], None]) -> float:
    """Microseconds of a step: the median of several runs of many steps."""
    runs = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        runs.append((time.perf_counter() - begin) / STEPS)
    return 1e6 * median(runs)


def cost(name: PolicyName, size: int, profile: Profile, path: Path) -> float:
    """Microseconds that a policy adds to a step."""
    requests, output, result = a_step(size, Random(0))
    scheduler = Idle(requests)

    def step() -> None:
        scheduler._update_after_schedule(output)  # noqa: SLF001 (that is what vLLM calls)
        scheduler.update_from_output(output, result)

    idle = timed(step)
    guard = Guard(
        name.make(profile, TABLE, frozenset(range(K_MAX + 1))), frozenset(range(K_MAX + 1)), [0] * 2048, print
    )
    renewal: Renewal[Guard] = Renewal(path, lambda: guard, print)
    steer(scheduler, guard, print, renewal.poll)
    return timed(step) - idle


def main() -> None:
    """Print the table."""
    profile = a_measured_profile()
    print("policy".ljust(12) + "".join(f"B={size}".rjust(9) for size in SIZES))
    with tempfile.NamedTemporaryFile() as file:
        for name in PolicyName:
            costs = [cost(name, size, profile, Path(file.name)) for size in SIZES]
            print(name.ljust(12) + "".join(f"{us:.1f}".rjust(9) for us in costs))


if __name__ == "__main__":
    main()
