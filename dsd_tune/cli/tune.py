"""`dsd-tune tune`: sweep, fit and validate in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.cli import flags

if TYPE_CHECKING:
    from dsd_tune.records.profile import Profile
    from dsd_tune.records.run import SweepRequest
    from dsd_tune.records.validation import Validation


def tune(
    out: Annotated[
        Path, typer.Option("-o", "--output-dir", metavar="RUN", help="Run directory; resumed if it exists.")
    ],
    model: flags.Model = None,
    speculative_config: flags.SpeculativeConfig = None,
    prompts: flags.Prompts = None,
    held_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Like --prompts, to validate with. Default: those of the sweep."),
    ] = None,
    testbed: flags.Testbed = False,
    batch_sizes: flags.BatchSizes = None,
    max_k: flags.MaxK = None,
    max_num_seqs: flags.MaxNumSeqs = None,
    context: flags.Context = "512",
    temperature: flags.Temperature = "0",
    starts: Annotated[
        int, typer.Option(min=1, help="Engine starts an arm in the sweep, and server starts in the validation.")
    ] = 3,
    rounds: flags.Rounds = 2,
    seed: flags.Seed = 0,
    budget: flags.Budget = None,
    target_regret: flags.TargetRegret = "2%",
    concurrency: flags.Concurrency = None,
    duration: flags.Duration = 20.0,
    output_len: flags.OutputLen = None,
    port: flags.Port = 8011,
    json_: Annotated[bool, typer.Option("--json", help="Print verdict, record and command as JSON.")] = False,
    engine_flags: flags.EngineFlags = None,
) -> None:
    """Sweep, fit and validate: from a model and a drafter to a line that servers have proven.

    Each stage leaves in RUN what it measured, at once. The same command goes on where it stopped, whenever that was,
    and does nothing twice; --budget is for the sweep alone. The last line is what to paste.

    Exit codes are those of `validate`: 4 also where the line has the fixed K, since servers found that better than the
    table.
    """
    from dsd_tune.cli.fit import fit_run
    from dsd_tune.cli.numbers import stated_contexts, stated_temperatures
    from dsd_tune.cli.request import named_target, seconds, share, sweep_request, testbed_target
    from dsd_tune.cli.sweep import measure
    from dsd_tune.cli.trial import tried
    from dsd_tune.cli.trial_request import levels, stated_request
    from dsd_tune.storage import formats
    from dsd_tune.storage.prompts import load_prompts
    from dsd_tune.validate import exit_code

    budget_s = seconds(budget) if budget else None
    target = (testbed_target if testbed else named_target)(model, speculative_config, prompts, engine_flags or [])
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
        load_format="auto",
        synthetic_acceptance=(),
    )
    levels(concurrency, request.max_num_seqs)
    texts = load_prompts(target.prompts)
    held = load_prompts(held_out) if held_out else texts
    path = out / "profile.json"

    _say("1 of 3: sweep")
    # A budget that was spent to the end is not spent again; without one, the sweep itself knows what is left.
    measure(request, texts, out, 0.0 if budget_s and _is_fitted(out, request) else budget_s, share(target_regret))
    _say("2 of 3: fit")
    profile = formats.read(formats.PROFILE, path) if _is_fitted(out, request) else fit_run(out)
    _say(f"2 of 3: fit: {profile.decision.verdict}; {profile.decision.reason}")
    _say("3 of 3: validate")
    trial = stated_request(
        profile,
        path,
        held,
        concurrency=concurrency,
        starts=starts,
        duration_s=duration,
        output_tokens=output_len,
    )
    validation = tried(path, trial, held, None, port)
    _print(formats.read(formats.PROFILE, path), validation, as_json=json_)
    raise typer.Exit(exit_code(validation))


def _is_fitted(run: Path, request: SweepRequest) -> bool:
    """Whether the run has a profile of all that it measured."""
    from dsd_tune.storage import formats
    from dsd_tune.storage.run_directory import RunDirectory

    path = run / "profile.json"
    if not path.is_file():
        return False
    profile = formats.read(formats.PROFILE, path)
    newest = max((sample.taken_at_s for sample in RunDirectory.open(run).timings()), default=0.0)
    return profile.request == request and profile.created_at_s >= newest


def _print(profile: Profile, validation: Validation, *, as_json: bool) -> None:
    import json

    from rich.console import Console

    from dsd_tune.cli.said import said_of
    from dsd_tune.cli.screen import show_on_screen
    from dsd_tune.emit.formats import Format, emit
    from dsd_tune.records.proven import proven
    from dsd_tune.report.validation import render
    from dsd_tune.storage import codec

    advised = proven(profile)
    emission = emit(advised, Format.CLI, *said_of(advised))
    if as_json:
        decision, record = codec.encode(advised.decision), codec.encode(validation)
        typer.echo(json.dumps({"decision": decision, "validation": record, "command": emission.text}, indent=1))
        return
    show_on_screen(profile)
    Console().print(render(validation))
    for remark in emission.remarks:
        typer.echo(f"Note: {remark}.", err=True)
    typer.echo(emission.text)


def _say(stage: str) -> None:
    typer.echo(stage, err=True)
