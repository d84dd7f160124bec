"""`dsd-tune plan`: what a sweep would measure and how long it would take, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.cli import flags

if TYPE_CHECKING:
    from dsd_tune.cli.request import Target
    from dsd_tune.outlay import Pace
    from dsd_tune.records.run import SweepRequest


def plan(
    model: flags.Model = None,
    speculative_config: flags.SpeculativeConfig = None,
    prompts: flags.Prompts = None,
    testbed: flags.Testbed = False,
    batch_sizes: flags.BatchSizes = None,
    max_k: flags.MaxK = None,
    max_num_seqs: flags.MaxNumSeqs = None,
    context: flags.Context = "512",
    temperature: flags.Temperature = "0",
    load_format: flags.LoadFormat = "auto",
    synthetic_acceptance: flags.SyntheticAcceptance = None,
    starts: flags.Starts = 3,
    rounds: flags.Rounds = 2,
    seed: flags.Seed = 0,
    budget: flags.Budget = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="EARLIER", help="Take times from this profile.json of a similar engine.")
    ] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Start the engine and time a few cells, about 20 s.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    engine_flags: flags.EngineFlags = None,
) -> None:
    """Show what a sweep with the same flags would measure, and how long it would take. Nothing is measured.

    Times come from --profile or from --probe; without either only counts are known.
    """
    from dsd_tune.cli.numbers import stated_acceptance, stated_contexts, stated_temperatures
    from dsd_tune.cli.request import seconds, sweep_request
    from dsd_tune.errors import UsageError

    if profile and probe:
        raise UsageError("--profile and --probe both tell times.", "Give one of them.")
    budget_s = seconds(budget) if budget else None
    target = _target(model, speculative_config, prompts, engine_flags or [], testbed=testbed, real=probe)
    request = sweep_request(
        target,
        batch_sizes=batch_sizes,
        max_k=max_k,
        max_num_seqs=max_num_seqs,
        contexts=stated_contexts(context),
        temperatures=stated_temperatures(temperature),
        starts=starts,
        rounds=rounds,
        seed=seed,
        load_format=load_format,
        synthetic_acceptance=stated_acceptance(synthetic_acceptance),
    )
    pace, alive_together = _pace(request, target, profile, probe=probe)
    _print(request, pace, alive_together, budget_s, as_json=json_)


def _target(
    model: str | None, config: str | None, prompts: Path | None, engine_flags: list[str], *, testbed: bool, real: bool
) -> Target:
    """What `sweep` would measure; where nothing is started, what is not given does not matter."""
    from dsd_tune.cli.request import Target, named_target, parse_config, testbed_target

    if real:
        return (testbed_target if testbed else named_target)(model, config, prompts, engine_flags)
    parsed = parse_config(config) if config else {}
    return Target(model or "", parsed, prompts or Path(), tuple(engine_flags))


def _pace(request: SweepRequest, target: Target, profile: Path | None, *, probe: bool) -> tuple[Pace | None, int]:
    """Times as far as they are known, and how many engines live together: one where nobody looked."""
    from dsd_tune.outlay import pace_of
    from dsd_tune.storage import formats

    if profile:
        return pace_of(formats.read(formats.PROFILE, profile), request), 1
    if not probe:
        return None, 1
    from tempfile import TemporaryDirectory

    from dsd_tune.cli.engine import engine_of
    from dsd_tune.cli.pace import probed
    from dsd_tune.storage.prompts import load_prompts

    with TemporaryDirectory() as logs:
        engine = engine_of(request, load_prompts(target.prompts), Path(logs))
        return probed(engine, request), engine.alive_together


def _print(
    request: SweepRequest, pace: Pace | None, alive_together: int, budget_s: float | None, *, as_json: bool
) -> None:
    import json
    from dataclasses import asdict

    from rich.console import Console

    from dsd_tune.outlay import anchors, refinement
    from dsd_tune.report.outlay import render

    always, at_most = anchors(request, pace, alive_together), refinement(request, pace)
    if as_json:
        parts = {"anchors": asdict(always), "refinement_at_most": asdict(at_most), "budget_s": budget_s}
        typer.echo(json.dumps(parts, indent=1))
    else:
        Console().print(render(request, always, at_most, budget_s))
