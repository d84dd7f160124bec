"""One run's study in a storage of Optuna: the only door to it. Every call explains what the storage raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dsd_tune.errors import UsageError
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.run import Manifest
from dsd_tune.records.visit import Visit
from dsd_tune.storage import formats
from dsd_tune.studies import trials
from dsd_tune.studies.address import Address

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

_MANIFEST = "dsd_tune:manifest"
_SAMPLE = "dsd_tune:sample:"

_METRIC_NAMES = "study:metric_names"
"""Optuna's own key; its function for it warns that it may change."""

State = Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL"]
"""Of Optuna's trials; PRUNED are those that were too late, or stand for no visit."""


class TrialOver(Exception):
    """The trial was ended by another worker, which had not seen this one alive for too long."""


@dataclass(frozen=True, slots=True)
class Study:
    """A study that is a run of dsd-tune; make one by `create` or `find`. Trials go by their number.

    Whatever a reader must not lose is in system attributes, which dashboards leave alone; user attributes and values
    are for people.
    """

    address: Address
    storage: BaseStorage
    name: str
    id: int
    manifest: Manifest
    _read: dict[tuple[int, str], Block | Failure] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def create(cls, address: Address, storage: BaseStorage, name: str, manifest: Manifest) -> Study:
        """A new study for the run of `manifest`.

        Raises:
            UsageError: the name is taken.
        """
        from optuna.exceptions import DuplicatedStudyError
        from optuna.study import StudyDirection

        with address.explained():
            try:
                study_id = storage.create_new_study([StudyDirection.MINIMIZE], name)
            except DuplicatedStudyError as error:
                raise taken(address, name) from error
            try:
                storage.set_study_system_attr(study_id, _MANIFEST, formats.document(formats.MANIFEST, manifest))
                storage.set_study_system_attr(study_id, _METRIC_NAMES, [trials.METRIC])
                for key, value in trials.for_people(manifest).items():
                    storage.set_study_user_attr(study_id, key, value)
            except BaseException:
                # By Ctrl-C too: half a study could be neither gone on with nor begun again.
                storage.delete_study(study_id)
                raise
        return cls(address, storage, name, study_id, manifest)

    @classmethod
    def find(cls, address: Address, storage: BaseStorage, name: str) -> Study | None:
        """The run of that name, if there is one.

        Raises:
            UsageError: its manifest is damaged, or of a newer dsd-tune.
        """
        if name not in names(address, storage):
            return None
        with address.explained():
            study_id = storage.get_study_id_from_name(name)
            document = storage.get_study_system_attrs(study_id)[_MANIFEST]
        manifest = formats.parse(formats.MANIFEST, document, f"The study {name} in {address}")
        return cls(address, storage, name, study_id, manifest)

    @property
    def where(self) -> str:
        """Its name and place, to begin a sentence with."""
        return f"The study {self.name} in {self.address}"

    def enrol(self, worker: str) -> int:
        """A number for a worker's process that no other has: that of a trial which ends as it begins."""
        return self._add(trials.arrival(worker))

    def begin(self, visit: Visit, worker: str) -> int:
        """A new running trial of `visit`, which nobody sees before it is whole."""
        return self._add(trials.trial_of(visit, self.manifest.request, worker))

    def keep(self, trial: int, number: int, sample: Block | Failure) -> None:
        """Put a worker's sample into its running trial.

        Raises:
            TrialOver: another worker has ended the trial.
        """
        with self._unended():
            self.storage.set_trial_system_attr(self._id(trial), f"{_SAMPLE}{number}", formats.sample_document(sample))

    def sign(self, trial: int) -> None:
        """Say that the worker of a running trial is alive.

        Raises:
            TrialOver: another worker has ended it.
        """
        with self._unended():
            self.storage.set_trial_user_attr(self._id(trial), trials.SEEN_ALIVE, trials.now())

    def complete(self, trial: int, tpot_s: float, by_k: Mapping[int, float]) -> None:
        """End a running trial with the best TPOT and that of each K, in seconds.

        Raises:
            TrialOver: another worker was faster.
        """
        from optuna.trial import TrialState

        with self._unended():
            for k, seconds in by_k.items():
                self.storage.set_trial_intermediate_value(self._id(trial), k, _shown_ms(seconds))
            self.storage.set_trial_state_values(self._id(trial), TrialState.COMPLETE, [_shown_ms(tpot_s)])

    def abandon(self, trial: int, state: State, why: str) -> None:
        """End a running trial without a value, and say why.

        Raises:
            TrialOver: another worker was faster.
        """
        from optuna.trial import TrialState

        with self._unended():
            self.storage.set_trial_user_attr(self._id(trial), trials.OUTCOME, why)
            self.storage.set_trial_state_values(self._id(trial), TrialState[state])

    def trials(self, *states: State) -> list[FrozenTrial]:
        """Trials in any of `states`, in the order of their numbers; not to be changed."""
        return [trial for trial in self._trials() if trial.state.name in states]

    def visit_of(self, trial: FrozenTrial) -> Visit:
        """The visit that a trial is.

        Raises:
            UsageError: its parameters make none.
        """
        try:
            return trials.visit_of(trial)
        except ValueError as error:
            raise UsageError(
                f"{self._where(trial)} is damaged: {error}.", "Restore the storage, or go on with another one."
            ) from error

    def samples(self) -> Iterator[tuple[str, int, Block | Failure]]:
        """Every sample with its worker and the number it has there.

        Raises:
            UsageError: a sample is damaged, or of a newer dsd-tune.
        """
        for trial in self._trials():
            for key, document in trial.system_attrs.items():
                if key.startswith(_SAMPLE):
                    yield trials.worker(trial), int(key.removeprefix(_SAMPLE)), self._sample(trial, key, document)

    def _sample(self, trial: FrozenTrial, key: str, document: object) -> Block | Failure:
        known = trial.number, key
        if known not in self._read:
            where = f"{self._where(trial)}, {key},"
            self._read[known] = formats.parse_sample(document, self.manifest.request, where)
        return self._read[known]

    def _add(self, trial: FrozenTrial) -> int:
        with self.address.explained():
            return self.storage.get_trial_number_from_id(self.storage.create_new_trial(self.id, trial))

    def _trials(self) -> list[FrozenTrial]:
        with self.address.explained():
            return self.storage.get_all_trials(self.id, deepcopy=False)

    def _id(self, trial: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self.id, trial)

    def _where(self, trial: FrozenTrial) -> str:
        return f"Trial {trial.number} of the study {self.name} in {self.address}"

    @contextmanager
    def _unended(self) -> Iterator[None]:
        from optuna.exceptions import UpdateFinishedTrialError

        with self.address.explained():
            try:
                yield
            except UpdateFinishedTrialError as error:
                raise TrialOver from error


def names(address: Address, storage: BaseStorage) -> list[str]:
    """The runs of dsd-tune in a storage; other studies there are left alone."""
    with address.explained():
        return sorted(study.study_name for study in storage.get_all_studies() if _MANIFEST in study.system_attrs)


def _shown_ms(seconds: float) -> float:
    """Milliseconds for people, to a microsecond, which is far below any noise."""
    return round(seconds * 1e3, 3)


def taken(address: Address, name: str) -> UsageError:
    """The error of a study that cannot be begun, because there is one of that name."""
    return UsageError(
        f"{address} holds a study named {name} already.",
        "Take part in it with --join, or name another directory: its name is the study's.",
    )
