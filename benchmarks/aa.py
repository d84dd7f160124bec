"""Two arms that are the same simulated engine, measured and compared as any two arms: `aa.py [SEEDS]`.

Prints for each seed how much slower the one seems to be than the other, and at the end how often the interval of that
covers zero, which is the truth. Half of the seeds have all engines alive together, half one at a time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.model.sampled import Sampled
from dsd_tune.records.profile import Comparison

SAME = CostLaw(tax_s=0.0, tax_request_s=0.0)
"""At K=0 the table's engine costs what `no_spec` does, to the last bit."""

NOISE = Noise(start_sd=0.02, drift_per_hour=0.1, step_sd=0.03)


def compared(seed: int, alive_together: int) -> Comparison:
    """How much slower K=0 in the table's engine seems to be, over all batch sizes."""
    engine = SimulatedEngine(SAME, (0.7,), noise=NOISE, seed=seed, max_num_seqs=16, alive_together=alive_together)
    shelf = swept(engine, starts=3, rounds=2, steps=8, ks=(0, 1), seed=seed)
    surface = Fit(shelf.manifest, shelf.samples()).surface
    tax = surface.dsd[:, 0] - surface.no_spec
    return Sampled(tax.point.mean(), tax.draws.mean(axis=1)).comparison()


def main(seeds: int) -> None:
    """Compare, print, count."""
    same = 0
    for seed in range(seeds):
        found = compared(seed, 8 if seed % 2 == 0 else 1)
        covers = found.low <= 0 <= found.high
        same += covers
        print(
            f"{seed:3} {found.value:+.2%} [{found.low:+.2%}, {found.high:+.2%}], {found.detectable:.2%} detectable: "
            f"{'same' if covers else 'DIFFERENT'}",
            flush=True,
        )
    print(f"same in {same} of {seeds}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
