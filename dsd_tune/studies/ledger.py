"""The ledger of a worker: every sample on its own disk first, then in the study that all workers share."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from contextlib import suppress
from itertools import chain, count, groupby
from types import TracebackType
from typing import Self

from dsd_tune.errors import DsdTuneError
from dsd_tune.plan import Turn
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.run import Manifest
from dsd_tune.records.visit import Visit
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.studies import trials
from dsd_tune.studies.pulse import GRACE_S, INTERVAL_S, Pulse, Watch
from dsd_tune.studies.study import Study, TrialOver

_STARTS_A_PROCESS = 1000
"""Numbers of engine starts for each process of a worker; more than it lives to make."""

_LOOK_AGAIN_S = 2.0
"""Seconds between two looks at others who must end first: short beside a visit."""


class StudyLedger:
    """See `Ledger`. Inside a `with` it gives signs of life; at the end it gives back the visits it did not finish.

    `run` must be locked. `worker` is its name in the study, the same whenever it goes on.
    """

    def __init__(
        self, run: RunDirectory, study: Study, worker: str, *, interval_s: float = INTERVAL_S, grace_s: float = GRACE_S
    ) -> None:
        self._run = run
        self._study = study
        self._worker = worker
        self._held: dict[Visit, int] = {}
        self._pulse = Pulse(study, interval_s)
        self._watch = Watch(grace_s)
        self._look_again_s = min(interval_s, _LOOK_AGAIN_S)
        self._starts = count()
        self._numbers = count()

    def __enter__(self) -> Self:
        """Put in order what this worker left behind when it last died, then take part."""
        for trial in self._study.trials("RUNNING"):
            if trials.worker(trial) == self._worker:
                self._give_back(trial.number, "its worker died")
        self._starts = count(_STARTS_A_PROCESS * self._study.enrol(self._worker))
        mine = [number for worker, number, _ in self._study.samples() if worker == self._worker]
        self._numbers = count(max(mine, default=-1) + 1)
        self._share_what_only_the_disk_has()
        self._pulse.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what is not finished; after a whole run, put the samples of all workers on this disk."""
        self._pulse.stop()
        with suppress(*([DsdTuneError] if error else ())):
            for visit in list(self._held):
                self._give_back(self._let_go(visit), "its worker ended")
        if error is None:
            self._take_home()

    @property
    def manifest(self) -> Manifest:
        """See `Ledger.manifest`."""
        return self._study.manifest

    def samples(self) -> list[Block | Failure]:
        """See `Ledger.samples`."""
        rows: dict[str, dict[int, Block | Failure]] = defaultdict(dict)
        for worker, number, sample in self._first_of_each_turn():
            rows[worker][number] = sample
        of_workers = [[row[number] for number in sorted(row)] for row in rows.values()]
        of_workers.sort(key=lambda samples: samples[0].taken_at_s)
        return list(chain.from_iterable(of_workers))

    def under_way(self) -> frozenset[Visit]:
        """See `Ledger.under_way`."""
        self._bury()
        others = [trial for trial in self._study.trials("RUNNING") if trial.number not in self._held.values()]
        return frozenset(self._study.visit_of(trial) for trial in others)

    def await_others(self) -> bool:
        """See `Ledger.await_others`."""
        visits = self.under_way()
        while visits and visits <= self.under_way():
            time.sleep(self._look_again_s)
        return bool(visits)

    def claim(self, visit: Visit) -> bool:
        """See `Ledger.claim`.

        Of several trials of a visit the one with the lowest number counts. Numbers rise in the order in which trials
        are added, and a trial is added whole: whoever has the higher number sees the lower one.
        """
        if visit in self._held or self._is_taken(visit):
            return visit in self._held
        mine = self._hold(visit)
        if lost := self._is_taken(visit, before=mine):
            self._study.abandon(self._let_go(visit), "PRUNED", "another worker was faster")
        return not lost

    def append(self, sample: Block | Failure) -> None:
        """See `Ledger.append`."""
        (visit,) = (visit for visit in self._held if trials.belongs(sample, visit))
        self._share(visit, self._run.append(sample))

    def finish(self, visit: Visit, tpot_s: float | None) -> None:
        """See `Ledger.finish`."""
        trial = self._let_go(visit)
        with suppress(TrialOver):
            if tpot_s is None:
                self._study.abandon(trial, "FAIL", "nothing could be measured")
            else:
                samples = [sample for sample in self.samples() if trials.belongs(sample, visit)]
                self._study.complete(trial, tpot_s, trials.tpot_by_k(samples))

    def new_start(self) -> int:
        """See `Ledger.new_start`. As unique as this process's number, and none that an older run has used."""
        used = {number for sample in self.samples() for number in (sample.slot, sample.start)}
        return next(start for start in self._starts if start not in used)

    def _hold(self, visit: Visit) -> int:
        trial = self._study.begin(visit, self._worker)
        self._held[visit] = trial
        self._pulse.held.add(trial)
        return trial

    def _let_go(self, visit: Visit) -> int:
        trial = self._held.pop(visit)
        self._pulse.held.discard(trial)
        return trial

    def _share(self, visit: Visit, sample: Block | Failure) -> None:
        number = next(self._numbers)
        try:
            self._study.keep(self._held[visit], number, sample)
        except TrialOver:
            # Others took this worker for dead. What it measures is as good as ever, and goes into a trial of its own.
            self._study.keep(self._hold(visit), number, sample)

    def _is_taken(self, visit: Visit, before: float = math.inf) -> bool:
        """Whether a trial of a lower number than `before` is making that visit, or has made it."""
        self._bury()
        return any(
            t.number < before and self._study.visit_of(t) == visit for t in self._study.trials("RUNNING", "COMPLETE")
        )

    def _bury(self) -> None:
        """Give back what workers hold that have died."""
        others = [trial for trial in self._study.trials("RUNNING") if trial.number not in self._held.values()]
        for trial in self._watch.silent({trial.number: trials.seen_alive(trial) for trial in others}):
            self._give_back(trial, "its worker fell silent")

    def _give_back(self, trial: int, why: str) -> None:
        """End a trial without a value. Its samples count, and its visit is free for the turns that are left."""
        with suppress(TrialOver):
            self._study.abandon(trial, "FAIL", f"given back: {why}")

    def _first_of_each_turn(self) -> list[tuple[str, int, Block | Failure]]:
        """A worker that was wrongly taken for dead may measure a turn that another measures too; one of them counts."""
        firsts: dict[Turn, tuple[str, int, Block | Failure]] = {}
        for worker, number, sample in self._study.samples():
            firsts.setdefault(Turn.of(sample), (worker, number, sample))
        return list(firsts.values())

    def _share_what_only_the_disk_has(self) -> None:
        """After a death between disk and study; or all of a run that was begun without this study."""
        shared = {Turn.of(sample) for _, _, sample in self._study.samples()}
        missing = [sample for sample in self._run.samples() if Turn.of(sample) not in shared]
        for visit, samples in groupby(missing, trials.visit_of_sample):
            self._hold(visit)
            for sample in samples:
                self._share(visit, sample)
            self._give_back(self._let_go(visit), "found on its worker's disk")

    def _take_home(self) -> None:
        samples = self.samples()
        if samples != self._run.samples():
            self._run.rewrite(samples)
