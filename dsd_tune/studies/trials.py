"""A visit as a trial of Optuna, and back: parameters say what is measured, user attributes tell people how it went."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import permutations
from typing import TYPE_CHECKING

from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Failure, Phase
from dsd_tune.records.run import Manifest, SweepRequest
from dsd_tune.records.visit import Visit

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

SEEN_ALIVE = "seen alive"
OUTCOME = "outcome"
METRIC = "best TPOT (ms)"
"""What a dashboard calls the value of a trial."""

_WORKER = "worker"

_MOST_REPETITIONS = 10_000


def trial_of(visit: Visit, request: SweepRequest, worker: str) -> FrozenTrial:
    """A running trial of `visit`, to be added to a study with all that it says."""
    from optuna.trial import TrialState, create_trial

    return create_trial(
        state=TrialState.RUNNING,
        params={
            "phase": visit.phase.value,
            "arms": " ".join(visit.arms),
            "context": visit.condition.context,
            "temperature": visit.condition.temperature,
            "batch_size": visit.batch_size,
            "repetition": visit.repetition,
        },
        distributions=_distributions(request),
        user_attrs={_WORKER: worker, SEEN_ALIVE: now()},
    )


def arrival(worker: str) -> FrozenTrial:
    """A trial of nothing, which is over: a process has begun to take part."""
    from optuna.trial import TrialState, create_trial

    return create_trial(state=TrialState.PRUNED, user_attrs={_WORKER: worker, OUTCOME: "arrived"})


def visit_of(trial: FrozenTrial) -> Visit:
    """The visit that a trial is.

    Raises:
        ValueError: its parameters are none of a visit.
    """
    params = trial.params
    try:
        return Visit(
            phase=Phase(params["phase"]),
            arms=tuple(Arm(arm) for arm in params["arms"].split()),
            condition=Condition(params["context"], params["temperature"]),
            batch_size=params["batch_size"],
            repetition=params["repetition"],
        )
    except KeyError as error:
        raise ValueError(f"it has no parameter {error}") from error


def belongs(sample: Block | Failure, visit: Visit) -> bool:
    """Whether a sample was taken at `visit`."""
    return visit_of_sample(sample, visit.arms) == visit and sample.cell.arm in visit.arms


def visit_of_sample(sample: Block | Failure, arms: tuple[Arm, ...] = tuple(Arm)) -> Visit:
    """The visit at which a sample was taken, if it was one of `arms`, which the sample does not say."""
    return Visit(sample.phase, arms, sample.condition, sample.stop, sample.repetition)


def worker(trial: FrozenTrial) -> str:
    """The name of the worker whose trial it is."""
    return str(trial.user_attrs.get(_WORKER, ""))


def seen_alive(trial: FrozenTrial) -> str:
    """The latest sign of life of a trial's worker."""
    return str(trial.user_attrs.get(SEEN_ALIVE, ""))


def for_people(manifest: Manifest) -> dict[str, str]:
    """What a study says about itself in a dashboard."""
    environment = manifest.environment
    return {
        "model": environment.model,
        "drafter": environment.drafter,
        "device": environment.device_name,
        "vLLM": environment.vllm_version,
        "dsd-tune": manifest.dsd_tune_version,
        "values": "TPOT in ms: the best of a visit, and as intermediate values that of each K",
    }


def tpot_by_k(samples: Iterable[Block | Failure]) -> dict[int, float]:
    """Time per output token in seconds at each K of one visit: the median over its blocks, but for reference cells."""
    of_k: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if isinstance(sample, Block) and sample.cell.arm is not Arm.NO_SPEC and sample.cell.batch_size == sample.stop:
            of_k[sample.cell.k].append(_tpot_s(sample))
    return {k: statistics.median(of_k[k]) for k in sorted(of_k)}


def _tpot_s(block: Block) -> float:
    steps = sum(prompt.steps for prompt in block.prompts)
    tokens = sum(prompt.tokens for prompt in block.prompts)
    return statistics.median(block.step_s) * (steps / tokens if tokens else 1.0)


def now() -> str:
    """The time as a person reads it."""
    return datetime.now(UTC).isoformat(sep=" ", timespec="milliseconds")


def _distributions(request: SweepRequest) -> dict[str, BaseDistribution]:
    """What each parameter could be: Optuna wants to know, and the same for all trials of a study."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    arms = [" ".join(group) for size in range(1, len(Arm) + 1) for group in permutations(Arm, size)]
    return {
        "phase": CategoricalDistribution([phase.value for phase in Phase]),
        "arms": CategoricalDistribution(arms),
        "context": CategoricalDistribution(request.contexts),
        "temperature": CategoricalDistribution(request.temperatures),
        "batch_size": IntDistribution(1, request.max_num_seqs, log=True),
        "repetition": IntDistribution(0, _MOST_REPETITIONS),
    }
