"""Load that hovers at a boundary of the table, on a real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from engine.tiny_model import make_drafter, make_target

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("quiet_cores")]

SCRIPT = Path(__file__).with_name("hovering.py")


def test_hysteresis_stays_calm_where_the_table_switches(tmp_path: Path) -> None:
    """It switches K at least five times less often, and no policy changes a text."""
    models = [str(make_target(tmp_path / "target")), str(make_drafter(tmp_path / "eagle"))]
    done = subprocess.run([sys.executable, str(SCRIPT), *models], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    none, table, calm = (json.loads(done.stdout.splitlines()[-1])[name] for name in ("none", "table", "hysteresis"))
    assert table["switches"] / table["steps"] >= 5 * calm["switches"] / calm["steps"]
    assert table["switches"] > 20
    assert none["texts"] == table["texts"] == calm["texts"]
