"""`dsd-tune fit`: from a run directory to `profile.json` and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.records.objective import Objective

if TYPE_CHECKING:
    from dsd_tune.fit import Fit, ImportFit
    from dsd_tune.model.aim import Aim
    from dsd_tune.model.outlook import Outlook
    from dsd_tune.records.profile import ConditionResult, Decision, Profile


def fit(
    run: Annotated[Path, typer.Argument(help="A run directory that `sweep` or `import` wrote.", metavar="RUN")],
    objective: Annotated[Objective, typer.Option(help="What to average over batch sizes.")] = Objective.TPOT,
    goodput: Annotated[
        str | None, typer.Option(metavar="tpot:MS", help="Count output tokens within this TPOT, as `vllm bench serve`.")
    ] = None,
    concurrency: Annotated[
        Path | None, typer.Option(metavar="CSV", help="How often each batch size happens: batch_size,weight.")
    ] = None,
    peak: Annotated[int | None, typer.Option(min=1, help="The largest batch size that your traffic reaches.")] = None,
    max_cudagraph_capture_size: Annotated[
        int | None, typer.Option(min=1, help="As in vLLM: B*(K+1) above it runs without CUDA graphs. A sweep knows it.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 5 if there is any warning.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the profile as JSON instead of the tables.")] = False,
) -> None:
    """Decide what to deploy from a run.

    Prints TPOT with intervals, acceptance, critical BS*K and the verdict, and saves them as RUN/profile.json.

    Exit code 0: there is something to deploy; 4: measured, and no gain worth deploying; 5: cannot tell yet,
    or with --strict any warning (docs/quality.md lists them).
    """
    from dsd_tune.cli.screen import show_on_screen
    from dsd_tune.records.profile import Verdict

    profile = fit_run(run, objective, goodput, concurrency, peak, max_cudagraph_capture_size)
    path = run / "profile.json"
    if json_:
        typer.echo(path.read_text())
    else:
        show_on_screen(profile)
        typer.echo(f"Profile: {path}", err=True)
    doubted = strict and profile.warnings
    raise typer.Exit((Verdict.UNCLEAR if doubted else profile.decision.verdict).exit_code)


def fit_run(
    run: Path,
    objective: Objective = Objective.TPOT,
    goodput: str | None = None,
    concurrency: Path | None = None,
    peak: int | None = None,
    max_cudagraph_capture_size: int | None = None,
) -> Profile:
    """Estimate and decide; the profile is left in RUN/profile.json."""
    import time
    from dataclasses import replace
    from importlib.metadata import version

    from dsd_tune.cli.aim import stated_aim
    from dsd_tune.cli.graphs import outlook
    from dsd_tune.fit import Fit, ImportFit
    from dsd_tune.quality.judge import judge, judge_import
    from dsd_tune.solve import decide
    from dsd_tune.storage import formats, published
    from dsd_tune.storage.run_directory import RunDirectory

    fitted: Fit | ImportFit
    if published.is_import(run):
        fitted = ImportFit(published.load(run))
        warnings = judge_import(fitted.published, fitted.findings)
    else:
        directory = RunDirectory.open(run)
        samples = directory.samples()
        fitted = Fit(directory.manifest, samples)
        warnings = judge(directory.manifest, samples, fitted.findings)
    limit = max_cudagraph_capture_size or fitted.capture_limit
    aim = stated_aim(objective, goodput, concurrency, peak, limit)
    graphs = outlook(fitted.manifest) if isinstance(fitted, Fit) else None
    decision = decide(fitted.surface, fitted.max_num_seqs, aim, graphs)
    profile = replace(
        fitted.profile(decision, time.time(), version("dsd-tune"), warnings),
        conditions=tuple(_by_condition(fitted, decision, aim, graphs)),
    )
    formats.write(formats.PROFILE, run / "profile.json", profile)
    return profile


def _by_condition(
    fitted: Fit | ImportFit, joint: Decision, aim: Aim, graphs: Outlook | None
) -> Iterator[ConditionResult]:
    """What each of several conditions says by itself, and what it loses under the decision made for all."""
    from dsd_tune.fit import Fit
    from dsd_tune.solve import decide, regret

    parts = fitted.parts if isinstance(fitted, Fit) else ()
    for part in parts if len(parts) > 1 else ():
        own = decide(part.surface, fitted.max_num_seqs, aim, graphs)
        yield part.result(own, regret(part.surface, fitted.max_num_seqs, aim, joint, own))
