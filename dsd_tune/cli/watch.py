"""`dsd-tune watch`: does a profile still describe the server that runs it?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsd_tune.watch import Watched


def watch(
    url: Annotated[str, typer.Option(help="A vLLM server that was started with DSD_TUNE_PROFILE.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch.")] = 60,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Watch a server under its own load: which K ran at which batch sizes, how fast, and whether the profile holds.

    Nothing is sent to it but two requests for its metrics. Exit code 0: the profile holds; 3: no metrics of dsd-tune;
    5: too few steps to tell; 6: the profile is not in force, or no longer describes the server.
    """
    import time

    from dsd_tune.engines.scrape import Scrape
    from dsd_tune.watch import watched

    before = Scrape.fetch(url)
    watched(before, before)
    typer.echo(f"Watching {url} for {seconds:g} s.", err=True)
    time.sleep(seconds)
    seen = watched(before, Scrape.fetch(url))
    typer.echo(_as_json(seen) if json_ else _as_text(seen))
    raise typer.Exit(seen.exit_code)


def _as_text(seen: Watched) -> str:
    lines = [f"state       {seen.state}", f"steps       {seen.total_steps:.0f}, K switched {seen.switches:.0f} times"]
    if seen.steps:
        lines += ["", f"{'batch size':<12}{'K':>3}{'steps':>10}{'step ms':>10}"]
    lines += [
        f"{sizes:<12}{k:>3}{n:>10.0f}{1e3 * seen.step_s[sizes, k]:>10.1f}" for (sizes, k), n in seen.steps.items()
    ]
    if seen.acceptance:
        shares = ", ".join(f"{position}: {share:.2f}" for position, share in seen.acceptance.items())
        lines += ["", f"acceptance by position, given drafted: {shares}"]
    lines += ["", _against("step time", seen.step_time), _against("accepted drafts", seen.accepted), "", seen.advice]
    return "\n".join(lines)


def _against(what: str, ratio: float | None) -> str:
    return f"{what}: {'not to be compared' if ratio is None else f'{ratio:.2f} of what the profile says'}"


def _as_json(seen: Watched) -> str:
    cells = [
        {"batch_size": sizes, "k": k, "steps": steps, "step_s": seen.step_s[sizes, k]}
        for (sizes, k), steps in seen.steps.items()
    ]
    whole = {
        "state": seen.state,
        "switches": seen.switches,
        "cells": cells,
        "acceptance": seen.acceptance,
        "step_time_ratio": seen.step_time,
        "accepted_ratio": seen.accepted,
        "advice": seen.advice,
    }
    return json.dumps(whole)
