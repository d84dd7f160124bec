"""The flags that several commands take alike: what to measure, and how to load servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str | None, typer.Option("--model", help="Model name or folder, as in `vllm serve`.")]
SpeculativeConfig = Annotated[
    str | None, typer.Option("--speculative-config", metavar="JSON", help="As in `vllm serve`, without a table.")
]
Prompts = Annotated[Path | None, typer.Option("--prompts", metavar="FILE", help="JSONL, one `prompt` a line.")]
Testbed = Annotated[bool, typer.Option("--testbed", help="Use the testbed for what is not given.")]
BatchSizes = Annotated[
    str | None, typer.Option("--batch-sizes", metavar="B,B,...", help="Default: 1, 2, 4, ... up to --max-num-seqs.")
]
MaxK = Annotated[int | None, typer.Option("--max-k", help="Largest K. Default: num_speculative_tokens, or 4.")]
MaxNumSeqs = Annotated[
    int | None,
    typer.Option("--max-num-seqs", help="As in `vllm serve`. Default: the largest batch size, or 32."),
]
Context = Annotated[
    str,
    typer.Option("--context", metavar="N,N,...", help="Longest sequences, in tokens; each is measured by itself."),
]
Temperature = Annotated[
    str, typer.Option("--temperature", metavar="T,T,...", help="Sampling temperatures of the traffic; likewise.")
]
LoadFormat = Annotated[
    str,
    typer.Option("--load-format", help="As in `vllm serve`. dummy: weights are invented, and only cost is measured."),
]
SyntheticAcceptance = Annotated[
    str | None,
    typer.Option(
        "--synthetic-acceptance",
        metavar="P,P,...",
        help="Share of steps that accept each position, stated instead of measured.",
    ),
]
Starts = Annotated[
    int, typer.Option("--starts", min=1, help="Engine starts an arm; more where their luck hides the verdict.")
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Blocks a cell at each stop of an engine.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of orders and prompts.")]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help="Time to measure for: 30s, 10m, 2h. Default: no limit.")
]
TargetRegret = Annotated[
    str, typer.Option(metavar="SHARE", help="Go on until the table is expected to lose no more: 2%, 0.02.")
]
EngineFlags = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ENGINE FLAGS]", help="Further flags of `vllm serve`.")
]

Concurrency = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", help="Requests at a time, up to the largest batch size. Default: 1,4,16."),
]
Duration = Annotated[float, typer.Option(min=1, help="Seconds a load should last.")]
OutputLen = Annotated[
    int | None,
    typer.Option(
        min=2, help="Most output tokens of a request. Default: half the sweep's context, so that depths are alike."
    ),
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="On the loopback, for the servers started here.")]
