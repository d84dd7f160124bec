import json
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.records.profile import Verdict
from dsd_tune.storage import formats


@pytest.fixture(autouse=True)
def _few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)


def test_a_file_named_twice_is_read_once_aloud(cli: Any, tmp_path: Path) -> None:
    """The same numbers twice are no repetition: they are read once, and that is said."""
    grid = tmp_path / "grid.csv"
    grid.write_text("batch_size,k,tpot_ms\n1,0,10\n1,1,8\n")
    said = cli("import", grid, grid, "-o", tmp_path / "run")
    assert f"{grid} was named more than once and is read once" in said.err
    assert "Imported 2 rows" in said.err


def test_one_grid_of_costs_serves_two_drafters(cli: Any, tmp_path: Path) -> None:
    """Step times beside a better and a worse speculation profile give a K that pays, and speculation off."""
    steps = "batch_size,k,step_ms\n" + "".join(f"{b},{k},{20 + 4 * k + b / 9}\n" for b in (1, 4, 16) for k in (0, 1, 2))
    (tmp_path / "steps.csv").write_text(steps)
    verdicts = []
    for rates in ([0.9, 0.6], [0.05, 0.01]):
        document = {
            "schema_version": "1.0",
            "measured": True,
            "method": "eagle3",
            "marginal_accept_rates": rates,
            "accept_length_model": "chain_analytic",
        }
        (tmp_path / "profile.json").write_text(json.dumps(document))
        run = tmp_path / f"run-{rates[0]}"
        assert cli("import", tmp_path / "steps.csv", tmp_path / "profile.json", "-o", run).code == 0
        cli("fit", run)
        verdicts.append(formats.read(formats.PROFILE, run / "profile.json").decision.verdict)
    assert verdicts == [Verdict.FIXED, Verdict.OFF]
