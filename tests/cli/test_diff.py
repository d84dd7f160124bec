import json
from pathlib import Path
from typing import Any

import pytest
from builders import a_profile, an_environment

from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.records.profile import Profile
from dsd_tune.solve import decide
from dsd_tune.storage import formats

CALM = Noise(start_sd=0.002, drift_per_hour=0, step_sd=0.005)


def _saved(path: Path, profile: Profile) -> Path:
    formats.write(formats.PROFILE, path, profile)
    return path


def _swept(seed: int, slower: float = 1.0) -> Profile:
    from sweeping import swept

    from dsd_tune.engines.cost_law import CostLaw

    law = CostLaw(critical_tokens=8, slope_s=0.003 * slower, overhead_s=0.004 * slower, verify_s=0.016 * slower)
    engine = SimulatedEngine(law, (0.8, 0.7), noise=CALM, seed=seed, max_num_seqs=16, alive_together=8)
    shelf = swept(engine, starts=3, rounds=4, steps=16)
    fit = Fit(shelf.manifest, shelf.samples())
    return fit.profile(decide(fit.surface, 16), 1.0, "0.1.0")


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two sweeps of one engine, and one of an engine that is a fifth slower."""
    folder = tmp_path_factory.mktemp("profiles")
    made = {"old": _swept(1), "again": _swept(1), "slow": _swept(1, 1.2)}
    return {name: _saved(folder / f"{name}.json", profile) for name, profile in made.items()}


def test_an_upgrade_that_costs_fails_the_gate(cli: Any, profiles: dict[str, Path]) -> None:
    """A slower engine ends with exit code 4 and names what is slower; the way back ends with 0."""
    said = cli("diff", profiles["old"], profiles["slow"])
    assert said.code == 4
    assert "Second against first: worse" in said.out
    assert "slower" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert cli("diff", profiles["slow"], profiles["old"]).code == 0


def test_nothing_changed_passes_the_gate(cli: Any, profiles: dict[str, Path]) -> None:
    """Two runs that agree are the same, aloud."""
    said = cli("diff", profiles["old"], profiles["again"])
    assert said.code == 0
    assert "Both were measured in the same environment." in said.out
    assert "Second against first: same" in said.out


def test_json_is_everything(cli: Any, profiles: dict[str, Path]) -> None:
    """With --json stdout is one object with the word, and the exit code is the same."""
    said = cli("diff", profiles["old"], profiles["slow"], "--json")
    document = json.loads(said.out)
    assert (said.code, document["said"]) == (4, "worse")
    assert document["tpot"]["ratio"]["value"] == pytest.approx(1.2, rel=0.05)
    assert {"keys", "cells", "acceptance", "advice_before", "advice_after"} <= document.keys()


def test_other_machines_are_named_first(cli: Any, tmp_path: Path) -> None:
    """Two machines are compared, and that they are two is the first that is said."""
    before = _saved(tmp_path / "a.json", a_profile())
    after = _saved(tmp_path / "b.json", a_profile(environment=an_environment(device_name="other GPU")))
    first = cli("diff", before, after).out.splitlines()
    assert first[0].startswith("These are two machines")
    assert "simulated -> other GPU" in first[1]


def test_what_is_no_profile_is_refused(cli: Any, tmp_path: Path) -> None:
    """A path that leads nowhere, or to something else, is a usage error by its name."""
    good = _saved(tmp_path / "a.json", a_profile())
    assert "none.json cannot be read" in cli("diff", good, tmp_path / "none.json").refused(2)
    (tmp_path / "other.json").write_text("{}")
    assert "is no dsd-tune profile" in cli("diff", good, tmp_path / "other.json").refused(2)
