"""`dsd-tune probe`: is the table really live on this server?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsd_tune.probe import Probed


def probe(
    profile: Annotated[Path, typer.Argument(help="The profile whose table should be live.", metavar="PROFILE")],
    url: Annotated[str, typer.Option(help="An idle vLLM server.")],
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Send a few requests to a server, and read off its counters which K it uses at up to three batch sizes.

    Exit code 0: the table is live; 1: the server does not answer or is not idle; 6: it is not live, with the reason.
    """
    from dsd_tune import probe as stage
    from dsd_tune.engines.held_load import read_at
    from dsd_tune.errors import UsageError
    from dsd_tune.storage import formats

    table = formats.read(formats.PROFILE, profile).decision.table
    if table is None:
        raise UsageError(f"{profile} has no table.", "Name a profile that advises one.")
    probed = stage.probe(table, lambda batch_size: read_at(url, batch_size))
    typer.echo(_as_json(probed) if json_ else _as_text(probed))
    raise typer.Exit(0 if probed.is_live else 6)


def _as_text(probed: Probed) -> str:
    rows = [f"{'batch size':<12}{'table':>6}{'server':>8}"]
    for reading, k in zip(probed.readings, probed.expected, strict=True):
        rows.append(f"{reading.batch_size:<12}{k:>6}{reading.k:>8.2f}")
    return "\n".join([*rows, "", probed.reason])


def _as_json(probed: Probed) -> str:
    cells = [
        {"batch_size": reading.batch_size, "expected_k": k, "k": reading.k}
        for reading, k in zip(probed.readings, probed.expected, strict=True)
    ]
    return json.dumps({"live": probed.is_live, "cells": cells, "reason": probed.reason})
