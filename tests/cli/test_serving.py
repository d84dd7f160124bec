"""`dsd-tune probe` and `dsd-tune watch`, as far as they need no server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_decided_profile

from dsd_tune.engines import held_load
from dsd_tune.engines.held_load import Reading
from dsd_tune.engines.scrape import Scrape
from dsd_tune.records.profile import Verdict
from dsd_tune.storage import formats


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """K=2 up to batch size 4, K=0 above."""
    formats.write(formats.PROFILE, tmp_path / "profile.json", a_decided_profile())
    return tmp_path / "profile.json"


def serve(monkeypatch: pytest.MonkeyPatch, *ks: float) -> None:
    """A server that drafts these numbers, reading by reading."""
    left = list(ks)
    monkeypatch.setattr(held_load, "read_at", lambda _url, size: Reading(size, 1, left.pop(0)))


def test_a_live_table_ends_well(cli: Any, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each batch size tried, then the verdict."""
    serve(monkeypatch, 2, 0)
    said = cli("probe", profile, "--url", "http://localhost:8000")
    assert said.code == 0
    assert [line.split() for line in said.out.splitlines()[1:3]] == [["1", "2", "2.00"], ["5", "0", "0.00"]]
    assert said.out.splitlines()[-1] == "The table is live."


def test_a_table_that_is_not_live_is_a_mismatch(cli: Any, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script sees the exit code and the reason."""
    serve(monkeypatch, 2, 2)
    said = cli("probe", profile, "--url", "http://localhost:8000", "--json")
    assert said.code == 6
    told = json.loads(said.out)
    assert (told["live"], [cell["k"] for cell in told["cells"]]) == (False, [2, 2])
    assert "a fixed K" in told["reason"]


def test_a_profile_without_a_table_cannot_be_probed(cli: Any, tmp_path: Path) -> None:
    """The message says what is missing."""
    fitted = a_decided_profile(Verdict.OFF)
    fitted = replace(fitted, decision=replace(fitted.decision, table=None))
    formats.write(formats.PROFILE, tmp_path / "p.json", fitted)
    assert "has no table" in cli("probe", tmp_path / "p.json", "--url", "http://localhost:1").refused(2)


@pytest.mark.parametrize("command", ["watch", "probe"])
def test_a_word_that_is_no_address_is_refused(cli: Any, profile: Path, command: str) -> None:
    """It is named, with an example of an address."""
    words = [profile] if command == "probe" else []
    assert "localhost:8000 is no address of a server. Write it as http://" in cli(
        command, *words, "--url", "localhost:8000"
    ).refused(2)


@pytest.mark.parametrize("command", ["watch", "probe"])
def test_a_server_that_is_not_there_is_named(cli: Any, profile: Path, command: str) -> None:
    """Nobody listens on port 1."""
    words = [profile] if command == "probe" else []
    assert "http://127.0.0.1:1" in cli(command, *words, "--url", "http://127.0.0.1:1").refused(1)


SCRAPE = """
dsd_tune:state{engine="0",state="applied"} 1
dsd_tune:k_switches_total{engine="0"} 3
dsd_tune:steps_total{batch_size="3-4",engine="0",k="1"} 400
dsd_tune:step_seconds_total{batch_size="3-4",engine="0",k="1"} 8
dsd_tune:drafted_total{engine="0",position="1"} 1600
dsd_tune:accepted_total{engine="0",position="1"} 800
dsd_tune:expected_accepted_total{engine="0"} 1000
"""


def test_watch_shows_what_happened(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps by batch size and K, acceptance, how both compare with the profile, and the advice last."""
    readings = [Scrape.parse(SCRAPE.strip().splitlines()[0]), Scrape.parse(SCRAPE)]
    monkeypatch.setattr(Scrape, "fetch", lambda _url: readings.pop(0))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    said = cli("watch", "--url", "http://localhost:8000")
    assert said.code == 0
    assert "3-4           1       400" in said.out
    assert said.out.splitlines()[-1].startswith("The profile describes this server")
