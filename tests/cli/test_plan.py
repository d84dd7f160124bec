import json
from pathlib import Path
from typing import Any

import pytest
from builders import a_profile, an_environment

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate
from dsd_tune.storage import formats

EAGLE = '{"method": "eagle", "model": "drafter"}'
SMALL = ("--batch-sizes", "1,4", "--max-k", "2", "--starts", "2")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a simulated engine in vLLM's place."""
    monkeypatch.setattr(
        "dsd_tune.engines.vllm_engine.VllmEngine",
        lambda **asked: SimulatedEngine(acceptance=(0.7, 0.6), max_num_seqs=4, alive_together=8),
    )


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A profile of every cell of the small plan, each step of 10 ms."""
    cells = [Cell(Arm.NO_SPEC, b, 0) for b in (1, 4)] + [Cell(Arm.DSD, b, k) for b in (1, 4) for k in (0, 1, 2)]
    one = Interval(0.01, 0.009, 0.011)
    estimates = tuple(CellEstimate(cell, one, one, None, 2, 4, 1.0) for cell in cells)
    formats.write(formats.PROFILE, tmp_path / "profile.json", a_profile(cells=estimates, environment=an_environment()))
    return tmp_path / "profile.json"


def test_counts_need_nothing_at_all(cli: Any) -> None:
    """Without model, engine or profile, cells, visits, blocks and starts are told, and that times are not known."""
    said = cli("plan", *SMALL)
    assert said.code == 0
    assert "Times are unknown: --probe" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    anchors = json.loads(cli("plan", *SMALL, "--json").out)["anchors"]
    # Two starts of two arms, each at two stops, with a reference after the first.
    assert anchors == {
        "cells": 8,
        "visits": 8,
        "blocks": 2 * 2 * 2 * (1 + 3) + 4,
        "starts": 4,
        "measuring_s": None,
        "starting_s": None,
    }


def test_an_earlier_profile_tells_times(cli: Any, earlier: Path) -> None:
    """Blocks take their steps, those dropped to settle included; starts and prefills are not known from a profile."""
    plan = json.loads(cli("plan", *SMALL, "--profile", earlier, "--json").out)
    assert plan["anchors"]["measuring_s"] == pytest.approx(plan["anchors"]["blocks"] * 10 * 0.01)
    assert plan["anchors"]["starting_s"] is None
    assert "come on top" in cli("plan", *SMALL, "--profile", earlier).out


@pytest.mark.parametrize(
    ("budget", "said"), [("1s", "1 s is not enough for the anchors"), ("1h", "60.0 min is enough for the anchors")]
)
def test_a_budget_is_judged(cli: Any, earlier: Path, budget: str, said: str) -> None:
    """Whether a budget is enough is said before anything runs."""
    out = " ".join(cli("plan", *SMALL, "--profile", earlier, "--budget", budget).out.split())
    assert said in out


def test_a_cell_the_profile_lacks_makes_times_unknown(cli: Any, earlier: Path) -> None:
    """A K that the earlier profile did not measure has no time, and none is made up."""
    plan = json.loads(cli("plan", *SMALL, "--max-k", "3", "--profile", earlier, "--json").out)
    assert plan["anchors"]["measuring_s"] is None


@pytest.mark.usefixtures("engine")
def test_a_probe_times_the_engine_itself(cli: Any, tmp_path: Path) -> None:
    """With --probe the engine that would be swept is started, timed at the corners, and ended."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why?"}\n')
    target = ("--model", "target", "--speculative-config", EAGLE, "--prompts", prompts)
    plan = json.loads(cli("plan", *SMALL, *target, "--probe", "--json").out)
    assert plan["anchors"]["visits"] == 2
    assert plan["anchors"]["measuring_s"] >= 0
    assert plan["anchors"]["starting_s"] >= 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--probe",), "--model, --speculative-config, --prompts must be given"),
        (("--probe", "--profile", "p.json"), "--profile and --probe both tell times"),
        (("--profile", "p.json"), "p.json cannot be read"),
        (("--budget", "soon"), "'soon' is no time to spend"),
        (("--max-k", "0"), "largest K must be 1 or more"),
        (("--speculative-config", "{"), "--speculative-config is not JSON"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_planned_is_refused(cli: Any, words: tuple[str, ...], complaint: str) -> None:
    """What makes no sense gets one sentence and exit code 2."""
    assert complaint in cli("plan", *words).refused(2)
