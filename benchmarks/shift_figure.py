"""Draws `shift.json`, which `shift.py` wrote: `python benchmarks/shift_figure.py DIR/shift.json [shift.png]`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shift import GOODPUT, PHASES, Reading, Run

from dsd_tune.model.sampled import Array

BIN_S = 5.0
COLOURS = ("#0072b2", "#999999", "#d55e00")
"""Told apart by colour-blind readers."""


def runs_of(raw: dict[str, Any]) -> dict[str, list[Run]]:
    """All runs by arm."""
    by_arm: dict[str, list[Run]] = defaultdict(list)
    for run in raw["runs"]:
        readings = [
            Reading(r["at_s"], r["tokens"], {int(k): n for k, n in r["steps"].items()}) for r in run["readings"]
        ]
        by_arm[run["arm"]].append(Run(run["arm"], run["phase_s"], readings))
    return by_arm


def speeds(runs: Sequence[Run], edges: Array) -> Array:
    """Tokens a second in each bin, the mean of all rounds."""
    totals = [np.interp(edges, [r.at_s for r in run.readings], [r.tokens for r in run.readings]) for run in runs]
    return np.diff(np.mean(totals, axis=0)) / np.diff(edges)


def ks(runs: Sequence[Run], edges: Array) -> Array:
    """K in each bin, the mean of all steps of all rounds."""
    steps = weighted = np.zeros(len(edges) - 1)
    for run in runs:
        at = [r.at_s for r in run.readings]
        for k in {k for r in run.readings for k in r.steps}:
            gained = np.diff(np.interp(edges, at, [r.steps.get(k, 0.0) for r in run.readings]))
            steps, weighted = steps + gained, weighted + k * gained
    return weighted / np.maximum(steps, 1)


def main() -> None:
    """Speed above, K below."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    raw = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    by_arm = runs_of(raw)
    phase_s = by_arm[GOODPUT][0].phase_s
    edges = np.arange(0, len(PHASES) * phase_s + BIN_S / 2, BIN_S)
    middles = (edges[:-1] + edges[1:]) / 2
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, height_ratios=(2, 1))
    for (arm, runs), colour in zip(by_arm.items(), COLOURS, strict=True):
        label = arm if arm == GOODPUT else f"{arm} (K={raw['tables'][arm]})"
        above.plot(middles, speeds(runs, edges), color=colour, label=label, lw=2 if arm == GOODPUT else 1.2)
        below.plot(middles, ks(runs, edges), color=colour, lw=2 if arm == GOODPUT else 1.2)
    for axes in (above, below):
        axes.axvspan(phase_s, 2 * phase_s, color="#eeeeee", zorder=0)
        axes.set_ylim(0)
        axes.set_xlim(0, len(PHASES) * phase_s)
    for number, name in enumerate(PHASES):
        above.text((number + 0.5) * phase_s, 0.03, name, ha="center", transform=above.get_xaxis_transform())
    above.set_ylabel("tokens/s")
    above.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.08))
    above.set_title(f"Acceptance shifts: {raw['clients']} clients, mean of {len(by_arm[GOODPUT])} rounds")
    below.set_ylabel("mean K")
    below.set_xlabel("seconds")
    figure.tight_layout()
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("shift.png")
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main()
