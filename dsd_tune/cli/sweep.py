"""`dsd-tune sweep`: measure a real engine over batch size and K into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.cli import flags

if TYPE_CHECKING:
    from rich.console import Console

    from dsd_tune.records.prompt import Prompt
    from dsd_tune.records.run import SweepRequest


ARMS_SHARE = 2 / 3
"""Of a budget, where the best fixed K has to be measured in engines of its own after the arms."""


def sweep(
    out: Annotated[
        Path, typer.Option("-o", "--output-dir", metavar="RUN", help="Run directory; resumed if it exists.")
    ],
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
    target_regret: flags.TargetRegret = "2%",
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where workers share the study: database URL or journal file. Default: RUN."),
    ] = None,
    join: Annotated[bool, typer.Option("--join", help="Take part in a run that another worker has begun.")] = False,
    engine_flags: flags.EngineFlags = None,
) -> None:
    """Measure a real engine over batch size and K.

    Step time and acceptance are measured at every batch size and K, and in an engine without speculation; then where
    the best K changes, or is in doubt. Every block is on disk before the next begins. The same command on the same RUN
    goes on where it stopped, with another --budget or --target-regret if you like.
    """
    from dsd_tune.cli.numbers import stated_acceptance, stated_contexts, stated_temperatures
    from dsd_tune.cli.request import named_target, seconds, share, sweep_request, testbed_target
    from dsd_tune.storage.prompts import load_prompts

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
        load_format=load_format,
        synthetic_acceptance=stated_acceptance(synthetic_acceptance),
    )
    limits = (seconds(budget) if budget else None, share(target_regret))
    measure(request, load_prompts(target.prompts), out, *limits, storage=storage, join=join)
    typer.echo(f"dsd-tune fit {out}")


def measure(
    request: SweepRequest,
    prompts: tuple[Prompt, ...],
    out: Path,
    budget_s: float | None,
    target_regret: float,
    *,
    storage: str | None = None,
    join: bool = False,
) -> None:
    """Measure what is left of a run; of an interruption it is said on stderr that the same command goes on."""
    from rich.console import Console

    console = Console(stderr=True)
    try:
        _measure(request, prompts, out, console, budget_s, target_regret, storage=storage, join=join)
    except KeyboardInterrupt:
        console.print(
            f"Interrupted. What was measured is kept in {out}; the same command goes on from there.", markup=False
        )
        raise


def _measure(
    request: SweepRequest,
    prompts: tuple[Prompt, ...],
    out: Path,
    console: Console,
    budget_s: float | None,
    target_regret: float,
    *,
    storage: str | None,
    join: bool,
) -> None:
    from dsd_tune.cli.engine import engine_of
    from dsd_tune.cli.judge import fixed_k, judge
    from dsd_tune.records.environment import Environment
    from dsd_tune.report.live import watch
    from dsd_tune.storage.run_directory import log_directory
    from dsd_tune.studies.joining import take_part
    from dsd_tune.sweep import Budget, Sweep

    engine = engine_of(request, prompts, log_directory(out))

    def describe() -> Environment:
        with console.status("Asking vLLM what it would run"):
            return engine.describe()

    with take_part(out, request, describe, storage=storage, join=join) as ledger:
        changes_graphs = ledger.manifest.environment.table_changes_graphs
        budget = Budget(budget_s and (ARMS_SHARE if changes_graphs else 1.0) * budget_s)
        with watch(console, budget) as watcher:
            sweep = Sweep(engine, ledger, watcher, judge(ledger.manifest, target_regret), budget)
            sweep.measure_arms()
            budget.limit_s = budget_s
            best = fixed_k(ledger.manifest, ledger.samples()) if changes_graphs and sweep.is_covered else 0
            if best:
                sweep.measure_static(best)
        if short := watcher.progress.shortfall(target_regret):
            console.print(short, markup=False)
