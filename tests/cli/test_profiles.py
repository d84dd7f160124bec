"""The profiles that come with dsd-tune: each can be read, shown, emitted, and fitted again to the same answer."""

from pathlib import Path
from typing import Any

import pytest

from dsd_tune.fit import Fit, ImportFit
from dsd_tune.model.aim import Aim
from dsd_tune.solve import decide
from dsd_tune.storage import formats, published
from dsd_tune.storage.run_directory import RunDirectory

PROFILES = Path(__file__).parents[2] / "profiles"
RUNS = sorted(path for path in PROFILES.iterdir() if path.is_dir())
CAPTURE_LIMITS = {"qwen3-30b-a3b-eagle3-gb200": 512}

every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)


@every_run
def test_it_is_shown_and_emitted(cli: Any, run: Path) -> None:
    """Its verdict is on the screen, and what emit-config prints ends with that verdict's exit code."""
    verdict = formats.read(formats.PROFILE, run / "profile.json").decision.verdict
    assert f"Verdict: {verdict}" in cli("show", run).out
    emitted = cli("emit-config", run / "profile.json")
    assert emitted.code == verdict.exit_code
    assert emitted.out.startswith("vllm serve ")


@every_run
def test_it_is_in_the_list_with_its_verdict(run: Path) -> None:
    """The README has one line for it, with what it advises."""
    decision = formats.read(formats.PROFILE, run / "profile.json").decision
    (line,) = [line for line in (PROFILES / "README.md").read_text().splitlines() if line.startswith(f"| `{run.name}`")]
    advised = str(decision.table.as_lists()).replace(" ", "") if decision.table else ""
    assert f"table `{advised}`" in line or f"fixed K of {decision.fixed_k}" in line


@every_run
def test_an_import_is_no_measurement_of_ours(run: Path) -> None:
    """What others published has no environment, and says what it cannot tell."""
    if published.is_import(run):
        profile = formats.read(formats.PROFILE, run / "profile.json")
        assert profile.environment is None
        assert profile.warnings


@every_run
def test_a_fit_of_today_decides_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored profile is what follows from the stored numbers."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)
    if published.is_import(run):
        fit: Fit | ImportFit = ImportFit(published.load(run))
    else:
        measured = RunDirectory.open(run)
        fit = Fit(measured.manifest, measured.samples())
    decision = decide(fit.surface, fit.max_num_seqs, Aim(capture_limit=CAPTURE_LIMITS.get(run.name)))
    stored = formats.read(formats.PROFILE, run / "profile.json").decision
    assert (decision.verdict, decision.table, decision.fixed_k) == (stored.verdict, stored.table, stored.fixed_k)


def test_they_are_fit_to_be_published(cli: Any) -> None:
    """`dsd-tune check profiles/`, as whoever adds one is told to run it."""
    said = cli("check", PROFILES)
    assert said.code == 0, said.out
    assert said.out.count("\n") == len(RUNS) + 2
