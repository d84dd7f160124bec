"""`dsd-tune emit-config`: the verdict as text to paste."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsd_tune.emit import Format


def emit_config(
    profile: Annotated[Path, typer.Argument(help="A profile that `dsd-tune fit` wrote.", metavar="PROFILE")],
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.CLI,
) -> None:
    """Print what to paste into vLLM.

    A `vllm serve` line, a file for its `--config`, or the value of `--speculative-config`.

    Of an import, what it does not know is named on stderr, to be filled in.

    Exit code 0: a speculative config; 4: speculation does not pay, the line goes without; 5: cannot tell yet, likewise.
    """
    from dsd_tune.emit import emit, to_fill_in
    from dsd_tune.storage import formats

    fitted = formats.read(formats.PROFILE, profile)
    verdict = fitted.decision.verdict
    if verdict.exit_code:
        typer.echo(f"Verdict: {verdict}; {fitted.decision.reason}. Leave --speculative-config out.", err=True)
    for lacking in to_fill_in(fitted):
        typer.echo(f"Fill in: {lacking}.", err=True)
    typer.echo(emit(fitted, form))
    raise typer.Exit(verdict.exit_code)
