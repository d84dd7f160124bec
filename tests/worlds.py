"""Machines drawn at random whose truth is known, and what a sweep says of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from sweeping import swept

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import Noise, SimulatedEngine
from dsd_tune.fit import Fit
from dsd_tune.model.aim import Aim
from dsd_tune.model.sampled import Array, Sampled
from dsd_tune.model.weights import log_uniform_weights
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.table import Table
from dsd_tune.solve import decide

LARGEST = 32
KS = (0, 1, 2, 3, 4)
FULL_GRID = LARGEST * len(KS)
KINDS = ("dense", "experts", "cliff", "padded")


def a_world(seed: int, largest: int = LARGEST) -> SimulatedEngine:
    """A dense model or a mixture of experts, with a cliff or with padding, on a machine with every kind of noise.

    Steps scatter by 1 to 8 %, one in a hundred takes three times as long, engine starts differ by up to 3 %, and the
    machine slows down by up to 20 % an hour. One engine lives at a time, or all do.
    """
    random = Random(seed)
    noise = Noise(
        step_sd=random.uniform(0.01, 0.08),
        start_sd=random.uniform(0.005, 0.03),
        drift_per_hour=random.uniform(0, 0.2),
        outlier_share=0.01,
    )
    first = random.uniform(0.4, 0.85)
    acceptance = tuple(first - position * random.uniform(0.02, 0.08) for position in range(KS[-1]))
    alive_together = random.choice((1, 8))
    law = CostLaw(**_law(random, KINDS[seed % len(KINDS)]))
    return SimulatedEngine(
        law,
        acceptance,
        noise=noise,
        seed=seed,
        max_num_seqs=largest,
        prompts=max(256, 2 * largest),
        alive_together=alive_together,
    )


def _law(random: Random, kind: str) -> dict[str, Any]:
    common = {
        "critical_tokens": random.choice((8, 12, 16, 32, 64)),
        "slope_s": random.uniform(0.0003, 0.0012),
        "draft_s": random.uniform(0.0008, 0.003),
        "tax_s": random.uniform(0, 0.002),
        "tax_request_s": random.uniform(0, 0.0001),
    }
    special: dict[str, dict[str, Any]] = {
        "dense": {},
        "experts": {
            "critical_tokens": 200,
            "experts_s": random.uniform(0.01, 0.05),
            "expert_share": random.uniform(0.05, 0.2),
        },
        "cliff": {"cliff_tokens": random.choice((16, 24, 40, 64)), "cliff_s": random.uniform(0.005, 0.02)},
        "padded": {"capture_sizes": (1, 2, 4, *range(8, 65, 8))},
    }
    return common | special[kind]


@dataclass(frozen=True, slots=True)
class Trial:
    """One sweep of one world. `regret` is the share of TPOT that its table loses to the true best of every batch size.

    `held` says of each 95 % interval whether it holds the truth, by what it is an interval of.
    """

    seed: int
    regret: float
    cells: int
    blocks: int
    measured_s: float
    table: Table
    held: dict[str, list[bool]]


def try_world(seed: int, target_regret: float = 0.01, largest: int = LARGEST) -> Trial:
    """Sweep a world until its target, fit, decide, and compare with the truth."""
    engine = a_world(seed, largest)
    sizes = tuple(sorted({2**i for i in range(largest.bit_length()) if 2**i <= largest} | {largest}))
    shelf = swept(
        engine, target=target_regret, batch_sizes=sizes, ks=KS, max_num_seqs=largest, contexts=(1024,), starts=3, seed=0
    )
    fit = Fit(shelf.manifest, shelf.samples())
    table = decide(fit.surface, largest, Aim(capture_limit=fit.capture_limit)).table
    assert table
    measured = {s.cell for s in shelf.kept}
    held: dict[str, list[bool]] = {}
    for what, estimate, truth in _claims(fit, engine, measured):
        low, high = estimate.limits()
        held.setdefault(what, []).append(bool(low <= truth <= high))
    cells = len({cell for cell in measured if cell.arm is Arm.DSD})
    return Trial(seed, _regret(engine, table), cells, len(shelf.kept), engine.now_s(), table, held)


def _regret(engine: SimulatedEngine, table: Table) -> float:
    """Every doubling of the batch size counts alike."""
    size = table.max_num_seqs
    cost = np.array([[engine.true_tpot_s(Cell(Arm.DSD, b, k)) for k in KS] for b in range(1, size + 1)])
    chosen: Array = cost[np.arange(size), list(table.dense())]
    return float(log_uniform_weights(size) @ (chosen / cost.min(axis=1) - 1))


def _claims(fit: Fit, engine: SimulatedEngine, measured: set[Cell]) -> Iterator[tuple[str, Sampled, float]]:
    """What it is, the estimate and the truth, of logs: acceptance lengths, steps, gains, and K against K=0."""
    surface, tpot = fit.surface, fit.surface.table_tpot()
    # Absolute times are those of the machine as it was half-way; nothing else depends on when.
    drift = engine.noise.drift_per_hour * engine.now_s() / 3600 / 2
    for k in KS[1:]:
        yield "acceptance length", surface.log_tokens[k], np.log(engine.true_tokens_per_step(k))
    for row, size in enumerate(fit.batch_sizes):
        off, zero = Cell(Arm.NO_SPEC, size, 0), Cell(Arm.DSD, size, 0)
        for k in KS[1:]:
            cell = Cell(Arm.DSD, size, k)
            if cell not in measured:
                continue
            truth = np.log(engine.true_tpot_s(cell))
            yield "step time", surface.dsd[row, k], np.log(engine.true_step_s(cell)) + drift
            if off in measured:
                yield "gain", tpot[row, k] - surface.no_spec[row], truth - np.log(engine.true_tpot_s(off))
            if zero in measured:
                yield "K against K=0", tpot[row, k] - tpot[row, 0], truth - np.log(engine.true_tpot_s(zero))
