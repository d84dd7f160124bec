"""Valid records for tests: each takes only what the test is about."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.fit import ImportFit
from dsd_tune.model.sampled import DRAWS, Sampled
from dsd_tune.model.surface import Surface
from dsd_tune.records.comparison import Said
from dsd_tune.records.condition import Condition
from dsd_tune.records.environment import Environment
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase, PromptCounts
from dsd_tune.records.profile import (
    AcceptanceLength,
    Boundary,
    CellEstimate,
    Comparison,
    CriticalSize,
    Crossover,
    Decision,
    HeldOut,
    Limit,
    PositionAcceptance,
    Profile,
    Rival,
    Source,
    Stretch,
    Tax,
    Variance,
    Verdict,
)
from dsd_tune.records.published import Fact, Published, PublishedAcceptance, PublishedRow
from dsd_tune.records.run import Manifest, SweepRequest
from dsd_tune.records.table import Table
from dsd_tune.records.validation import (
    ArmCommand,
    ArmComparison,
    Load,
    ServedArm,
    Validation,
    ValidationRequest,
)
from dsd_tune.records.warning import Code, QualityWarning
from dsd_tune.solve import decide

A_CONDITION = Condition(512, 0.0)
"""What everything is measured under where a test is not about conditions."""


def an_environment(**changed: Any) -> Environment:
    """The environment of a simulated engine, with `changed` fields. Its digest does not follow the law's fields."""
    return replace(SimulatedEngine().describe(), **{"model_digest": "310a6d34d2e19f1e", **changed})


def a_request(**changed: Any) -> SweepRequest:
    """A small request, with `changed` fields."""
    request = SweepRequest(
        model="target",
        speculative_config='{"method": "eagle", "model": "drafter"}',
        batch_sizes=(1, 4, 16),
        ks=(0, 1, 2),
        max_num_seqs=16,
        contexts=(512,),
        starts=2,
        rounds=2,
        steps=8,
        settle=2,
        temperatures=(0.0,),
        seed=1,
        engine_flags=("--enforce-eager",),
        load_format="auto",
        synthetic_acceptance=(),
    )
    return replace(request, **changed)


def a_manifest(**changed: Any) -> Manifest:
    """A manifest, with `changed` fields."""
    return replace(Manifest(a_request(), an_environment(), 1.5, "0.1.0"), **changed)


def a_block(**changed: Any) -> Block:
    """A block of two steps with one prompt, with `changed` fields."""
    block = Block(
        cell=Cell(Arm.DSD, 1, 2),
        condition=A_CONDITION,
        phase=Phase.MAIN,
        stop=1,
        repetition=0,
        round=0,
        slot=0,
        start=0,
        taken_at_s=1.5,
        step_s=(0.02, 0.03),
        steps_run=3,
        context=(10, 15),
        prompts=(PromptCounts("p", 2, (2, 2), (2, 1)),),
        machine=None,
    )
    return replace(block, **changed)


def a_failure(**changed: Any) -> Failure:
    """A cell that ran out of memory, with `changed` fields."""
    failure = Failure(Cell(Arm.STATIC, 16, 2), A_CONDITION, Phase.STATIC, 16, 0, 0, 4, 1, 2.5, "out of memory")
    return replace(failure, **changed)


def a_warning(**changed: Any) -> QualityWarning:
    """A warning about the whole run, with `changed` fields."""
    return replace(QualityWarning(Code.FEW_STARTS, (), "few starts", "Measure with --starts 3."), **changed)


def a_profile(**changed: Any) -> Profile:
    """A profile that advises K=2 up to batch size 4 and K=0 above, with `changed` fields."""
    one = Interval(0.1, 0.05, 0.15)
    gain = Comparison(0.1, 0.05, 0.15, 0.07)
    decision = Decision(
        verdict=Verdict.TABLE,
        max_num_seqs=16,
        table=Table.from_dense([2] * 4 + [0] * 12),
        fixed_k=2,
        table_gain=gain,
        fixed_gain=Comparison(0.02, -0.01, 0.05, 0.04),
        table_over_fixed=Comparison(0.08, 0.06, 0.1, 0.03),
        confirmed_over_fixed=0.07,
        fixed_worst_loss=0.2,
        boundaries=(Boundary(4, 3, 6, 4, 16, 2, 0, one),),
        rivals=(Rival(0, 3, 4), Rival(2, 5, 6)),
        losing=(Stretch(9, 16, one),),
        objective="TPOT",
        weights="uniform",
        reason="the table saves 10 %",
        remarks=("K=2 is the largest tried",),
        capture_sizes=(),
    )
    profile = Profile(
        environment=an_environment(),
        request=a_request(),
        facts=(),
        cells=(CellEstimate(Cell(Arm.DSD, 1, 2), one, one, one, 2, 4, 0.9, 0.012),),
        acceptance=(PositionAcceptance(1, one),),
        acceptance_lengths=(AcceptanceLength(1, Interval(1.7, 1.6, 1.8)),),
        k0_tax=(Tax(1, gain),),
        crossovers=(Crossover(1, True, Interval(12, 10, 14)), Crossover(2, True, None)),
        critical=CriticalSize(None, 0.04, "no bend seen"),
        roofline_tokens=None,
        held_out=HeldOut(4, 0.01, 0.03, ((16, 2),)),
        variance=Variance(
            between_starts=0.02,
            drift=0.03,
            between_blocks=0.01,
            trend=Interval(0.004, -0.01, 0.02),
            limit=Limit("the table over the fixed K", Source.BLOCKS),
        ),
        decision=decision,
        conditions=(),
        warnings=(a_warning(),),
        validation=None,
        created_at_s=3.0,
        dsd_tune_version="0.1.0",
    )
    return replace(profile, **changed)


def a_decided_profile(
    verdict: Verdict = Verdict.TABLE,
    *,
    table: Table | None = None,
    fixed_k: int = 2,
    flags: tuple[str, ...] = (),
    capture_sizes: tuple[int, ...] = (),
    config: dict[str, Any] | None = None,
    model: str = "target",
    **environment: Any,
) -> Profile:
    """A profile to emit: its decision, the flags and config of its sweep, and fields of its environment."""
    profile = a_profile(environment=an_environment(model=model, **environment))
    table = table or profile.decision.table
    assert table
    decision = replace(
        profile.decision,
        verdict=verdict,
        table=table,
        max_num_seqs=table.max_num_seqs,
        fixed_k=fixed_k,
        capture_sizes=capture_sizes,
    )
    request = a_request(
        model=model,
        engine_flags=flags,
        max_num_seqs=table.max_num_seqs,
        batch_sizes=(1, table.max_num_seqs),
        speculative_config=json.dumps(config or {"method": "eagle", "model": "drafter"}),
    )
    return replace(profile, request=request, decision=decision)


@dataclass(frozen=True, slots=True)
class AStep:
    """What a policy sees: `decoding` requests among `batch_size`; by default all of them."""

    batch_size: int
    decoding: int = -1
    k: int = 0
    context_tokens: int = 0

    def __post_init__(self) -> None:
        if self.decoding < 0:
            object.__setattr__(self, "decoding", self.batch_size)


def a_load(**changed: Any) -> Load:
    """A load of a server without speculation, with `changed` fields."""
    load = Load(ServedArm.NO_SPEC, 0, 1, 1.5, 8, 0, 20.0, None, (128,) * 8, 0.04, 0.2, None, None, None, 0, 0, 0, None)
    return replace(load, **changed)


def a_validation_request(**changed: Any) -> ValidationRequest:
    """Two arms, two concurrencies and three starts, with `changed` fields."""
    commands = (ArmCommand(ServedArm.NO_SPEC, ("model",)), ArmCommand(ServedArm.TABLE, ("model",)))
    request = ValidationRequest(commands, (1, 4), 3, (8, 32), 128, 0.0, "digest")
    return replace(request, **changed)


def a_validation(advised: ServedArm, said: Said, alone: dict[ServedArm, Said]) -> Validation:
    """A record that says `said` of the advice; `alone` is what it says of arms against no speculation."""
    one = Interval(0.1, 0.0, 0.2)
    off = ServedArm.NO_SPEC
    rows = tuple(ArmComparison(arm, off, None, one, one, one, 0.01, word) for arm, word in alone.items())
    return Validation(a_validation_request(), advised, rows, (), said, (), 12, 1.5)


def a_surface(
    engine: SimulatedEngine,
    *,
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    ks: tuple[int, ...] = (0, 1, 2, 3, 4),
    start_sd: float = 0.0,
    within_sd: float = 0.0,
    seed: int = 0,
) -> Surface:
    """The engine's truth as a sweep would see it: one start effect an arm, and scatter a cell, both known in size."""
    rng = np.random.default_rng(seed)

    def seen(cells: list[list[Cell]]) -> Sampled:
        truth = np.log([[engine.true_step_s(cell) for cell in row] for row in cells])
        point = truth + start_sd * rng.standard_normal() + within_sd * rng.standard_normal(truth.shape)
        shared = start_sd * rng.standard_normal((DRAWS, 1, 1))
        return Sampled(point, point + shared + within_sd * rng.standard_normal((DRAWS, *truth.shape)))

    tokens = np.log([engine.true_tokens_per_step(k) for k in ks])
    return Surface(
        batch_sizes=batch_sizes,
        ks=ks,
        no_spec=seen([[Cell(Arm.NO_SPEC, b, 0)] for b in batch_sizes])[:, 0],
        dsd=seen([[Cell(Arm.DSD, b, k) for k in ks] for b in batch_sizes]),
        log_tokens=Sampled(tokens, np.broadcast_to(tokens, (DRAWS, len(ks)))),
        static={},
    )


def fitted_import(tpot_ms: dict[tuple[int, int], float], *, length: dict[int, float] | None = None) -> Profile:
    """What a fit concludes from published TPOTs by (batch size, K), with acceptance lengths by K where known."""
    rows = [
        PublishedRow(Cell(Arm.STATIC if k else Arm.NO_SPEC, b, k), None, ms / 1e3, None, "grid.csv")
        for (b, k), ms in tpot_ms.items()
    ]
    lengths = [PublishedAcceptance(k, tokens, (), None, "grid.csv") for k, tokens in (length or {}).items()]
    facts = (Fact("model", "a model"),)
    fit = ImportFit(Published(tuple(rows), tuple(lengths), facts, 0.02, 0.02, ("a remark",), 1.5, "0.1.0"))
    return fit.profile(decide(fit.surface, fit.max_num_seqs), 1.5, "0.1.0")
