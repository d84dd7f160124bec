"""`dsd-tune emit-config`: the verdict as text to paste."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsd_tune.emit.formats import Format


def emit_config(
    profile: Annotated[Path, typer.Argument(help="A profile that `dsd-tune fit` wrote.", metavar="PROFILE")],
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.CLI,
    data_parallel_size: Annotated[
        int, typer.Option(min=1, help="Ranks you serve with; vLLM drops a table above 1, so a fixed K is printed then.")
    ] = 1,
) -> None:
    """Print what to paste into vLLM, and into other tools.

    For vLLM: the value of `--speculative-config` (json), a `vllm serve` line (cli), a file for its `--config` (yaml),
    a container's arguments (compose, k8s). For other servers: TensorRT-LLM's draft_len_schedule (trtllm), SGLang's
    adaptive JSON (sglang). For other tools: acceptance as Model-Optimizer writes it (speculation-profile).

    Of an import, what its files do not tell is named, to be filled in. What servers said in `validate` goes before what
    the sweep said: a fixed K takes the place of a table that it beat there.

    Exit code 0: a speculative config; 3: a fixed K, since vLLM drops the table under data parallelism; 4: speculation
    does not pay, by the sweep or by what servers said since, the text goes without; 5: cannot tell yet, likewise.
    """
    from dsd_tune.cli.said import said_of
    from dsd_tune.emit.data_parallel import for_ranks, on_ranks
    from dsd_tune.emit.decision import doubts
    from dsd_tune.emit.formats import emit
    from dsd_tune.errors import EnvironmentUnfit
    from dsd_tune.records.proven import proven
    from dsd_tune.storage import formats

    measured = proven(formats.read(formats.PROFILE, profile))
    fitted, said, dropped = measured, doubts(measured), tuple[str, ...]()
    if form.is_for_vllm:
        fitted = for_ranks(measured, data_parallel_size)
        dropped = on_ranks(measured, fitted, data_parallel_size)
        said = (*said, *dropped, *said_of(fitted))
    emission = emit(fitted, form, *said)
    code = 0 if form is Format.SPECULATION_PROFILE else fitted.decision.verdict.exit_code
    if code:
        left_out = "Leave --speculative-config out" if form.is_for_vllm else "Leave speculation off"
        typer.echo(f"Verdict: {fitted.decision.verdict}; {fitted.decision.reason}. {left_out}.", err=True)
    for remark in emission.remarks:
        typer.echo(f"Note: {remark}.", err=True)
    typer.echo(emission.text)
    raise typer.Exit(code or (EnvironmentUnfit.exit_code if dropped else 0))
