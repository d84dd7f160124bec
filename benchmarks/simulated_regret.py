"""How much the adaptive sweep's table loses to the true optimum: `simulated_regret.py [SEEDS]`.

Prints one line a seed and a summary, and writes `simulated_regret.md` beside itself.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from worlds import FULL_GRID, KINDS, Trial, try_world  # noqa: E402 (the tests' own machines)


def main(seeds: int) -> None:
    """Try worlds 0 to `seeds` - 1, two at a time."""
    trials = []
    with ProcessPoolExecutor(2) as pool:
        for trial in pool.map(try_world, range(seeds)):
            trials.append(trial)
            print(
                f"{trial.seed:4} {KINDS[trial.seed % len(KINDS)]:8} regret {trial.regret:6.2%} {trial.cells:3} cells "
                f"{trial.blocks:4} blocks {trial.table.as_lists()}",
                flush=True,
            )
    text = _summary(trials)
    (HERE / "simulated_regret.md").write_text(text, encoding="utf-8")
    print(text)


def _summary(trials: list[Trial]) -> str:
    lines = [
        "# What the adaptive sweep loses to the true optimum",
        "",
        f"{len(trials)} simulated machines (`tests/worlds.py`): steps scatter by 1-8 %, outliers, drift, lucky starts.",
        "",
        "| machines | mean regret | worst | mean share of the full grid's cells | largest |",
        "|---|---|---|---|---|",
    ]
    for kind in (*KINDS, "all"):
        those = [t for t in trials if kind in ("all", KINDS[t.seed % len(KINDS)])]
        regrets, cells = [t.regret for t in those], [t.cells / FULL_GRID for t in those]
        lines.append(
            f"| {kind} | {np.mean(regrets):.2%} | {max(regrets):.2%} | {np.mean(cells):.0%} | {max(cells):.0%} |"
        )
    lines += ["", "| 95 % interval of | holds the truth | intervals |", "|---|---|---|"]
    for what in trials[0].held:
        held = [one for t in trials for one in t.held.get(what, [])]
        lines.append(f"| {what} | {np.mean(held):.1%} | {len(held)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
