"""What a sweep measures as `max_num_seqs` grows, on a simulated engine: `cost_growth.py`.

Writes `cost_growth.md`, a table, and `cost_growth.png`, a plot, beside itself.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from worlds import KS, Trial, try_world  # noqa: E402 (the tests' own machines)

LARGEST = (32, 256, 1024, 4096)
WORLD = 0
"""A dense model, on which K falls with the batch size."""


def main() -> None:
    """Sweep one machine as far as each of the sizes."""
    trials = []
    for largest in LARGEST:
        began = time.monotonic()
        trials.append(try_world(WORLD, largest=largest))
        print(f"{largest}: {trials[-1].cells} cells, {time.monotonic() - began:.0f} s", flush=True)
    (HERE / "cost_growth.md").write_text(_table(trials), encoding="utf-8")
    _plot(trials)


def _table(trials: list[Trial]) -> str:
    lines = [
        "# What a sweep measures as `max_num_seqs` grows",
        "",
        "One simulated dense model, K 0 to 4, until the table is expected to lose 1 % at most (`cost_growth.py`).",
        "",
        "| max_num_seqs | cells measured | full grid | share | blocks | regret of the table |",
        "|---|---|---|---|---|---|",
    ]
    for largest, trial in zip(LARGEST, trials, strict=True):
        full = largest * len(KS)
        lines.append(
            f"| {largest} | {trial.cells} | {full} | {trial.cells / full:.1%} | {trial.blocks} | {trial.regret:.2%} |"
        )
    return "\n".join(lines) + "\n"


def _plot(trials: list[Trial]) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("agg")
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(LARGEST, [trial.cells for trial in trials], "o-", label="cells measured")
    axes.plot(LARGEST, [len(KS) * (largest.bit_length()) for largest in LARGEST], ":", label="5 for each doubling")
    axes.set_xscale("log", base=2)
    axes.set_ylim(0)
    axes.set_xlabel("max_num_seqs")
    axes.set_ylabel("cells of the table's engine")
    axes.legend(frameon=False)
    axes.set_title("Cells grow as the logarithm of max_num_seqs")
    figure.tight_layout()
    figure.savefig(HERE / "cost_growth.png", dpi=120)


if __name__ == "__main__":
    main()
