"""`dsd-tune diff`: what an upgrade, a driver or a power cap changed, between two profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def diff(
    before: Annotated[Path, typer.Argument(help="The profile of what you run.", metavar="BEFORE")],
    after: Annotated[Path, typer.Argument(help="The profile of what you may run.", metavar="AFTER")],
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare two profiles: fingerprint, step time of each cell, acceptance, advice, with intervals of each ratio.

    Exit code 0: TPOT of what BEFORE advises is the same or lower, and nothing else is worse; 4: something is
    significantly worse; 5: cannot tell yet. A gate for upgrades lets 0 pass, and decides for itself about 5.
    """
    import json

    from rich.console import Console

    from dsd_tune.diff import compare
    from dsd_tune.report.comparison import render
    from dsd_tune.storage import codec, formats

    comparison = compare(formats.read(formats.PROFILE, before), formats.read(formats.PROFILE, after))
    if json_:
        typer.echo(json.dumps(codec.encode(comparison), indent=1))
    else:
        Console().print(render(comparison))
    raise typer.Exit(comparison.said.exit_code)
