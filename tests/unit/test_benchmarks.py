"""What the scripts in `benchmarks/` share: whose turn it is, ratios with intervals, and reading vLLM's sources."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts, as they see each other when one is run."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) == str(SCRIPTS / f"{name}.py"):
            del sys.modules[name]


def test_turns_go_there_and_back() -> None:
    """A drift that grows evenly falls on all alike: each name has the same mean place."""
    from arms import turns

    order = list(turns(["a", "b", "c"], 4))
    assert order[:6] == ["a", "b", "c", "c", "b", "a"]
    assert len({np.mean([i for i, one in enumerate(order) if one == name]) for name in "abc"}) == 1


def test_a_ratio_is_paired_and_its_interval_holds_the_truth() -> None:
    """What both sides share cancels, and of 400 small samples 92 to 98 % hold a true ratio of 0.9."""
    from arms import ratio

    random = np.random.default_rng(0)
    found = []
    for _ in range(400):
        shared = np.exp(random.normal(0, 0.5, 4))
        found.append(ratio(shared, 0.9 * shared * np.exp(random.normal(0, 0.02, 4))))
    assert 0.92 <= np.mean([one.low <= 0.9 <= one.high for one in found]) <= 0.98
    assert max(one.high - one.low for one in found) < 0.3


def a_package(folder: Path, **changed: str) -> Path:
    """A folder with files that define all that the runtime relies on, but for what is `changed` in their text."""
    from hooks_in_packages import HOOKS

    for file, classes in HOOKS.items():
        text = ""
        for owner, names in classes.items():
            methods = [f"    def {name}(self): self.inner = 1\n" for name in names if name.startswith("_")]
            text += f"class {owner}:\n    pass\n" + "".join(methods)
            text += "".join(f"    {name}: int = 0\n" for name in names if not name.startswith("_"))
        for old, new in changed.items():
            text = text.replace(f"{old}:", f"{new}:").replace(f"{old}(", f"{new}(")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("changed", "lacks"),
    [
        ({}, []),
        ({"req_id": "request_id"}, ["v1/core/sched/output.py: NewRequestData.req_id"]),
        ({"_update_after_schedule": "_advance"}, ["v1/core/sched/scheduler.py: Scheduler._update_after_schedule"]),
    ],
)
def test_a_renamed_hook_is_found(tmp_path: Path, changed: dict[str, str], lacks: list[str]) -> None:
    """A field or a method that a release calls otherwise is named, with its file and class; nothing else is."""
    from hooks_in_packages import missing

    assert missing(a_package(tmp_path, **changed)) == lacks


def test_a_file_that_is_gone_lacks_everything(tmp_path: Path) -> None:
    """Its classes are missing, not only their members."""
    from hooks_in_packages import missing

    (a_package(tmp_path) / "v1/request.py").unlink()
    assert "v1/request.py: Request" in missing(tmp_path)


def test_a_phase_s_speed_is_read_between_its_ends() -> None:
    """Tokens of other phases do not count, whenever the counters were read."""
    from shift import Reading, Run

    readings = [Reading(at, 10 * min(at, 20.0) + 30 * max(at - 20.0, 0.0), {}) for at in (0.0, 7.0, 20.0, 33.0, 41.0)]
    run = Run("any", 20.0, readings)
    assert [run.speed(0), run.speed(1)] == pytest.approx([10.0, 30.0])


def test_the_figure_s_k_is_a_mean_over_steps() -> None:
    """Of 30 steps at K=0 and 10 at K=2 in a bin the mean is 0.5, over all rounds together."""
    from shift import Reading, Run
    from shift_figure import ks

    one = Run("any", 10.0, [Reading(0.0, 0, {0: 0}), Reading(10.0, 0, {0: 30, 2: 0}), Reading(20.0, 0, {0: 30, 2: 20})])
    other = Run("any", 10.0, [Reading(0.0, 0, {2: 5}), Reading(10.0, 0, {2: 15}), Reading(20.0, 0, {2: 15})])
    assert ks([one, other], np.array([0.0, 10.0, 20.0])) == pytest.approx([0.5, 2.0])
