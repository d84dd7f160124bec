"""The dashboard and the alert rules against the metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from dsd_tune.runtime.metrics import Exporter

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = DOCS / "monitoring"


def named_in(text: str) -> set[str]:
    """Our metrics in a text."""
    return set(re.findall(r"dsd_tune:\w+", text))


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """What a server offers, as Prometheus names it."""
    prometheus_client = pytest.importorskip("prometheus_client")
    Exporter("m", [0])
    text = prometheus_client.generate_latest().decode()
    kinds = dict(re.findall(r"# TYPE (dsd_tune:\w+) (\w+)", text))
    return {name for name in kinds if not name.endswith("_created")}


def test_the_dashboard_asks_for_metrics_that_exist(exported: set[str]) -> None:
    """Each panel has a query, and each query names metrics of a server."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(named_in(query) for query in queries)
    assert named_in("".join(queries)) <= exported


def test_the_alerts_ask_for_metrics_that_exist(exported: set[str]) -> None:
    """Three rules, each with a summary and what to do."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    assert len(group["rules"]) == 3
    for rule in group["rules"]:
        assert named_in(rule["expr"])
        assert named_in(rule["expr"]) <= exported
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_documentation_names_every_metric(exported: set[str]) -> None:
    """What is exported is explained, and nothing else."""
    assert named_in((DOCS / "runtime.md").read_text()) == exported
