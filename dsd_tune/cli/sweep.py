"""`dsd-tune sweep`: measure a real engine over batch size and K into a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from dsd_tune.records.prompt import Prompt
    from dsd_tune.records.run import SweepRequest


def sweep(
    out: Annotated[
        Path, typer.Option("-o", "--output-dir", metavar="RUN", help="Run directory; resumed if it exists.")
    ],
    model: Annotated[str | None, typer.Option(help="Model name or folder, as in `vllm serve`.")] = None,
    speculative_config: Annotated[
        str | None, typer.Option(metavar="JSON", help="As in `vllm serve`, without a table.")
    ] = None,
    prompts: Annotated[Path | None, typer.Option(metavar="FILE", help="JSONL, one `prompt` a line.")] = None,
    testbed: Annotated[bool, typer.Option("--testbed", help="Use the testbed for what is not given.")] = False,
    batch_sizes: Annotated[
        str | None, typer.Option(metavar="B,B,...", help="Default: 1, 2, 4, ... up to --max-num-seqs.")
    ] = None,
    max_k: Annotated[int | None, typer.Option(help="Largest K. Default: num_speculative_tokens, or 4.")] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(help="As in `vllm serve`. Default: the largest batch size, or 32.")
    ] = None,
    max_context: Annotated[int, typer.Option(min=64, help="Longest sequence measured, in tokens.")] = 512,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature of the traffic.")] = 0.0,
    starts: Annotated[int, typer.Option(min=1, help="Engine starts an arm.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Blocks a cell in each engine start.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of orders and prompts.")] = 0,
    engine_flags: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ENGINE FLAGS]", help="Further flags of `vllm serve`.")
    ] = None,
) -> None:
    """Measure a real engine over batch size and K.

    Step time and acceptance are measured at every batch size and K, and in an engine without speculation. Every
    block is on disk before the next begins. The same command on the same RUN goes on where it stopped.
    """
    from rich.console import Console

    from dsd_tune.cli.request import named_target, sweep_request, testbed_target
    from dsd_tune.storage.prompts import load_prompts

    target = (testbed_target if testbed else named_target)(model, speculative_config, prompts, engine_flags or [])
    request = sweep_request(
        target,
        batch_sizes=batch_sizes,
        max_k=max_k,
        max_num_seqs=max_num_seqs,
        contexts=(max_context,),
        temperatures=(temperature,),
        starts=starts,
        rounds=rounds,
        seed=seed,
    )
    console = Console(stderr=True)
    try:
        _measure(request, load_prompts(target.prompts), out, console)
    except KeyboardInterrupt:
        console.print(
            f"Interrupted. What was measured is kept in {out}; the same command goes on from there.", markup=False
        )
        raise
    typer.echo(f"dsd-tune fit {out}")


def _measure(request: SweepRequest, prompts: tuple[Prompt, ...], out: Path, console: Console) -> None:
    import json
    import time
    from importlib.metadata import version

    from dsd_tune.engines.vllm_engine import VllmEngine
    from dsd_tune.fit import Fit
    from dsd_tune.records.measurement import Phase
    from dsd_tune.records.run import Manifest
    from dsd_tune.report.live import watch
    from dsd_tune.solve import decide
    from dsd_tune.storage.run_directory import RunDirectory, log_directory
    from dsd_tune.sweep import Sweep

    RunDirectory.require_usable(out, request)
    engine = VllmEngine(
        model=request.model,
        speculative_config=json.loads(request.speculative_config),
        ks=request.ks,
        max_num_seqs=request.max_num_seqs,
        max_context=request.contexts[-1],
        temperature=request.temperatures[0],
        prompts=prompts,
        seed=request.seed,
        engine_flags=request.engine_flags,
        log_dir=log_directory(out),
    )
    with console.status("Asking vLLM what it would run"):
        environment = engine.describe()
    run = RunDirectory.create(out, Manifest(request, environment, time.time(), version("dsd-tune")))
    with run.lock(), watch(console) as watcher:
        sweep = Sweep(engine, run, watcher)
        sweep.measure_arms()
        if environment.table_changes_graphs:
            # Of a resumed run, only what the choice rested on the first time: it must not change half-way.
            arms = [sample for sample in run.samples() if sample.phase is Phase.MAIN]
            decision = decide(Fit(run.manifest, arms).surface, request.max_num_seqs)
            sweep.measure_static(decision.fixed_k)
