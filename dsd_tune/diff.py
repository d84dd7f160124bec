"""From two profiles to what changed: fingerprint, cost, acceptance, advice. The runs are taken as independent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields

from dsd_tune.errors import UsageError
from dsd_tune.model.ratios import judged, mean_ratio, ratio, widening
from dsd_tune.records.comparison import CellChange, Change, Comparison, KeyChange, PositionChange, Said
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, Profile, Verdict

_MACHINE = ("device", "device_name", "driver", "threads", "gpu", "hardware")
"""Keys of fingerprints and of imported files that name the hardware."""

_ASKED = ("contexts", "temperatures")
"""Keys of a request that change the answer: how long sequences were, and how tokens were sampled."""

_LEAST = 1e-4
"""Where a rate of nothing begins, so that its ratio is a number."""


def compare(before: Profile, after: Profile) -> Comparison:
    """What changed from `before` to `after`.

    Cells and positions have intervals that hold all at once, so that the many of them raise no false alarm; the means
    over batch sizes have plain 95 % intervals.

    Raises:
        UsageError: no cell was measured in both.
    """
    return _Pair(before, after).comparison()


class _Pair:
    """Two profiles, with the cells that both have."""

    def __init__(self, before: Profile, after: Profile) -> None:
        self.before, self.after = before, after
        self._old, self._new = ({e.cell: e for e in profile.cells} for profile in (before, after))
        self._shared = sorted(self._old.keys() & self._new.keys())
        if not self._shared:
            raise UsageError(
                "the two profiles have no cell in common.", "Compare sweeps of the same batch sizes and K."
            )
        self._rates, self._new_rates = ({a.position: a.rate for a in p.acceptance} for p in (before, after))
        self._wider = widening(len(self._shared) + len(self._rates.keys() & self._new_rates.keys()))

    def comparison(self) -> Comparison:
        """Everything, and one word for it all."""
        choice = _chosen_cells(self.before.decision.verdict, self.before, self._shared)
        tpot = self._mean(choice, lambda e: e.tpot_s)
        cells = tuple(CellChange(cell, self._cell(cell)) for cell in self._shared)
        acceptance = self._positions(self._rates, self._new_rates, self._wider)
        said, reason = _overall(tpot, cells, acceptance)
        return Comparison(
            keys=tuple(_keys(self.before, self.after)),
            choice=_advice(self.before),
            tpot=tpot,
            no_spec=self._mean([c for c in self._shared if c.arm is Arm.NO_SPEC], lambda e: e.tpot_s),
            relative=self._mean([c for c in choice if c.arm is not Arm.NO_SPEC], _share_left),
            cells=cells,
            acceptance=acceptance,
            acceptance_lengths=self._lengths(),
            missing=tuple(sorted(self._old.keys() ^ self._new.keys())),
            advice_before=_advice(self.before),
            advice_after=_advice(self.after),
            said=said,
            reason=reason,
        )

    def _cell(self, cell: Cell) -> Change:
        old, new = self._old[cell], self._new[cell]
        pair = (old.step_s, new.step_s) if old.step_s and new.step_s else (old.tpot_s, new.tpot_s)
        return judged(ratio(*pair, self._wider), less_is_better=True)

    def _mean(self, cells: Iterable[Cell], read: Callable[[CellEstimate], Interval | None]) -> Change | None:
        """Over cells, each of which stands for its batch size."""
        pairs = [(read(self._old[cell]), read(self._new[cell])) for cell in cells]
        ratios = [ratio(old, new) for old, new in pairs if old and new]
        return judged(mean_ratio(ratios), less_is_better=True) if ratios else None

    def _lengths(self) -> tuple[PositionChange, ...]:
        old, new = ({a.k: a.tokens for a in p.acceptance_lengths if a.k} for p in (self.before, self.after))
        return self._positions(old, new, widening(len(old.keys() & new.keys())))

    def _positions(
        self, old: Mapping[int, Interval], new: Mapping[int, Interval], wider: float
    ) -> tuple[PositionChange, ...]:
        changes = ((at, ratio(_floored(old[at]), _floored(new[at]), wider)) for at in sorted(old.keys() & new.keys()))
        return tuple(PositionChange(at, judged(found, less_is_better=False)) for at, found in changes)


def _overall(
    tpot: Change | None, cells: Iterable[CellChange], acceptance: Iterable[PositionChange]
) -> tuple[Said, str]:
    """Worse if anything is; otherwise what may be said of the TPOT of what was advised."""
    slower = [str(c.cell) for c in cells if c.change.said is Said.WORSE]
    lower = [f"acceptance at position {a.at}" for a in acceptance if a.change.said is Said.WORSE]
    if tpot and tpot.said is Said.WORSE:
        return Said.WORSE, "TPOT of what the first profile advises is higher"
    if slower or lower:
        named = [*(f"the step of {cell}" for cell in slower), *lower]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        return Said.WORSE, f"worse: {', '.join(named[:3])}{more}"
    if tpot is None:
        return Said.UNCLEAR, "what the first profile advises was not measured in the second"
    said = {
        Said.BETTER: "TPOT of what the first profile advises is lower, and nothing is worse",
        Said.SAME: "TPOT of what the first profile advises is the same, and nothing is worse",
    }
    return tpot.said, said.get(tpot.said, "the intervals leave room for a loss; sweep with more starts or rounds")


def _chosen_cells(verdict: Verdict, profile: Profile, cells: Iterable[Cell]) -> list[Cell]:
    """One cell for each batch size: what the profile advises there; no speculation where it advises none."""
    decision = profile.decision
    by_size: dict[int, dict[tuple[Arm, int], Cell]] = {}
    for cell in cells:
        by_size.setdefault(cell.batch_size, {})[cell.arm, cell.k] = cell
    wanted = []
    for batch_size, found in by_size.items():
        if verdict is Verdict.TABLE and decision.table:
            k = decision.table.k_at(batch_size)
            order = [(Arm.DSD, k), (Arm.STATIC, k)]
        elif verdict is Verdict.FIXED:
            order = [(Arm.STATIC, decision.fixed_k), (Arm.DSD, decision.fixed_k)]
        else:
            order = [(Arm.NO_SPEC, 0)]
        wanted += [found[key] for key in order if key in found][:1]
    return wanted


def _advice(profile: Profile) -> str:
    decision = profile.decision
    if decision.verdict is Verdict.TABLE and decision.table:
        return f"{decision.verdict} {str(decision.table.as_lists()).replace(' ', '')}"
    return f"{decision.verdict} {decision.fixed_k}" if decision.verdict is Verdict.FIXED else str(decision.verdict)


def _keys(before: Profile, after: Profile) -> list[KeyChange]:
    """Hardware first: what is compared across it is the machines."""
    old, new = (_fingerprint(profile) for profile in (before, after))
    if before.environment and after.environment:
        unlike = {d.key for d in before.environment.differences(after.environment)}
        unlike |= {key for key in _ASKED if old.get(key) != new.get(key)}
    else:
        unlike = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    changes = [
        KeyChange(key, old.get(key, "not known"), new.get(key, "not known"), key in _MACHINE) for key in sorted(unlike)
    ]
    return sorted(changes, key=lambda change: not change.machine)


def _fingerprint(profile: Profile) -> dict[str, str]:
    """What is known of where a profile was measured: a sweep's environment, or what imported files state."""
    environment = profile.environment
    if environment is None:
        return {fact.key: fact.value for fact in profile.facts}
    named = {field.name: str(getattr(environment, field.name)) for field in fields(environment)}
    asked = {key: str(getattr(profile.request, key)) for key in _ASKED} if profile.request else {}
    return named | asked


def _share_left(estimate: CellEstimate) -> Interval | None:
    """TPOT over that without speculation in the same run, which does not know how fast the machine was."""
    gain = estimate.gain
    return _floored(Interval(1 - gain.value, 1 - gain.high, 1 - gain.low)) if gain else None


def _floored(share: Interval) -> Interval:
    return Interval(max(share.value, _LEAST), max(share.low, _LEAST), max(share.high, _LEAST))
