"""`dsd-tune show`: a profile on the terminal, as `fit` printed it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    profile: Annotated[
        Path, typer.Argument(help="A profile, or a run directory that was fitted.", metavar="PROFILE|RUN")
    ],
    json_: Annotated[bool, typer.Option("--json", help="Print the profile as JSON instead of the tables.")] = False,
) -> None:
    """Show what a fit concluded: grid, verdict, boundaries.

    Prints what `fit` printed, without fitting again; the verdict is what servers left of it, if any were asked. An old
    profile comes as today's version in JSON, too.
    """
    from dsd_tune.cli.fitted import fitted
    from dsd_tune.cli.screen import show_on_screen
    from dsd_tune.records.proven import proven
    from dsd_tune.storage import formats

    found = fitted(profile)
    if json_:
        typer.echo(formats.text(formats.PROFILE, found))
    else:
        show_on_screen(proven(found))
