"""Do independent sweeps agree? `agreement.py RUN RUN...`, each a run directory that `dsd-tune fit` has fitted.

Wherever two tables choose another K, each profile is asked whether it names the other's K as a rival. They agree if
both do: then both knew that this was undecided. Beside it stands how much the own choice saves of TPOT over the
other's, with the interval of that one number, and what the table of the other would have saved over the own, every
doubling of the batch size counting alike.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, product
from pathlib import Path

import numpy as np

from dsd_tune.fit import Fit
from dsd_tune.model.choices import Choice, choices
from dsd_tune.model.sampled import Sampled
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import Decision
from dsd_tune.records.table import Table
from dsd_tune.storage import formats
from dsd_tune.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class Sweep:
    """A run and the table that its profile advises."""

    path: Path

    @cached_property
    def decision(self) -> Decision:
        """As `dsd-tune fit` left it."""
        return formats.read(formats.PROFILE, self.path / "profile.json").decision

    @property
    def table(self) -> Table:
        """As decided; a fixed K, or none, is a table of one range."""
        return self.decision.table or Table.from_dense((self.decision.fixed_k,) * self.decision.max_num_seqs)

    def is_sure(self, batch_size: int, other: int) -> bool:
        """Whether it calls another K than its own worse, and not a rival."""
        rivals = self.decision.rivals
        return not any(rival.k == other and rival.first <= batch_size <= rival.last for rival in rivals)

    def saving(self, batch_size: int, k: int, other: int) -> Interval:
        """Share of TPOT that `k` saves over `other`, as a difference of logarithms."""
        return (self._log_tpot(other, batch_size) - self._log_tpot(k, batch_size)).interval()

    def saving_of(self, other: Table) -> Interval:
        """Share of TPOT that `other` saves over the own table, on the surface measured here."""
        sizes = range(1, self.table.max_num_seqs + 1)
        weights = np.array([1 / b for b in sizes])
        saved = [self._log_tpot(self.table.k_at(b), b) - self._log_tpot(other.k_at(b), b) for b in sizes]
        point = np.array([one.point for one in saved]) @ weights / weights.sum()
        draws = np.array([one.draws for one in saved]).T @ weights / weights.sum()
        return Sampled(point, draws).interval()

    def _log_tpot(self, k: int, batch_size: int) -> Sampled:
        return self._choices[f"K={k}"].log_tpot[batch_size - 1]

    @cached_property
    def _choices(self) -> dict[str, Choice]:
        run = RunDirectory.open(self.path)
        surface = Fit(run.manifest, run.samples()).surface
        return {choice.name: choice for choice in choices(surface, self.table.max_num_seqs, None).known}


def main(paths: list[str]) -> None:
    """Print every pair's differences and count the pairs without one that both are sure of."""
    sweeps = [Sweep(Path(path)) for path in paths]
    for sweep in sweeps:
        print(f"{sweep.path.name}: {sweep.table.as_lists()}")
    pairs = list(combinations(sweeps, 2))
    agreeing = sum(agree(one, other) for one, other in pairs)
    print(f"{agreeing} of {len(pairs)} pairs agree")
    print(f"scatter of the runs over what their intervals say: {scatter(sweeps):.2f} (chi-square over its freedom)")


def scatter(sweeps: Sequence[Sweep]) -> float:
    """About 1 if intervals are right: how far runs are apart in K against K=1, at every doubling of the batch size."""
    ks = range(2, max(sweep.table.k_max for sweep in sweeps) + 1)
    sizes = [2**n for n in range(sweeps[0].table.max_num_seqs.bit_length())]
    found = []
    for batch_size, k in product(sizes, ks):
        saved = [sweep.saving(batch_size, k, 1) for sweep in sweeps]
        values = np.array([one.value for one in saved])
        variances = np.array([((one.high - one.low) / 3.92) ** 2 for one in saved])
        mean = np.average(values, weights=1 / variances)
        found.append(float(np.sum((values - mean) ** 2 / variances)) / (len(sweeps) - 1))
    return float(np.mean(found))


def agree(one: Sweep, other: Sweep) -> bool:
    """Whether both are unsure wherever they differ."""
    swapped = one.saving_of(other.table), other.saving_of(one.table)
    print(f"{one.path.name} against {other.path.name}: each with the other's table saves {shown(*swapped)}")
    sizes = range(1, one.table.max_num_seqs + 1)
    by_ks = groupby(sizes, lambda b: (one.table.k_at(b), other.table.k_at(b)))
    unsure = [_unsure(one, other, ks, list(stretch)) for ks, stretch in by_ks if ks[0] != ks[1]]
    return all(unsure)


def _unsure(one: Sweep, other: Sweep, ks: tuple[int, int], stretch: list[int]) -> bool:
    """Whether both are on neighbouring batch sizes with the same two Ks; prints where the interval of one is surest."""
    told = {b: (one.saving(b, *ks), other.saving(b, *reversed(ks))) for b in stretch}
    surest = max(told, key=lambda b: max(saved.low for saved in told[b]))
    sure = any(one.is_sure(b, ks[1]) or other.is_sure(b, ks[0]) for b in stretch)
    sizes = f"B={stretch[0]}" if len(stretch) == 1 else f"B={stretch[0]} to {stretch[-1]}, B={surest}"
    print(f"  {sizes}: the own K ({ks[0]} and {ks[1]}) saves {shown(*told[surest])}{'  SURE' if sure else ''}")
    return not sure


def shown(*saved: Interval) -> str:
    """Each with its interval."""
    return ", ".join(f"{one.value:+.1%} [{one.low:+.1%}, {one.high:+.1%}]" for one in saved)


if __name__ == "__main__":
    main(sys.argv[1:])
