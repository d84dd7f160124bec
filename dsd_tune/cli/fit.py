"""`dsd-tune fit`: from a run directory to `profile.json` and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fit(
    run: Annotated[Path, typer.Argument(help="A run directory that `dsd-tune sweep` wrote.", metavar="RUN")],
    json_: Annotated[bool, typer.Option("--json", help="Print the profile as JSON instead of the tables.")] = False,
) -> None:
    """Decide what to deploy from a run.

    Prints TPOT with intervals, acceptance, critical BS*K and the verdict, and saves them as RUN/profile.json.

    Exit code 0: there is something to deploy; 4: measured, and no gain worth deploying; 5: cannot tell yet.
    """
    import time
    from importlib.metadata import version

    from rich.console import Console

    from dsd_tune.fit import Fit
    from dsd_tune.report.grid import render
    from dsd_tune.solve import decide
    from dsd_tune.storage import formats
    from dsd_tune.storage.run_directory import RunDirectory

    directory = RunDirectory.open(run)
    fitted = Fit(directory.manifest, directory.samples())
    decision = decide(fitted.surface, directory.manifest.request.max_num_seqs)
    profile = fitted.profile(decision, time.time(), version("dsd-tune"))
    path = run / "profile.json"
    formats.write(formats.PROFILE, path, profile)
    if json_:
        typer.echo(path.read_text())
    else:
        Console().print(render(profile))
        typer.echo(f"Profile: {path}", err=True)
    raise typer.Exit(decision.verdict.exit_code)
