"""`dsd-tune report`: a profile as one page to send to a colleague, as Markdown, and as pictures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dsd_tune.records.measurement import Block, Failure


class Kind(StrEnum):
    """What a report can be."""

    HTML = "html"
    MARKDOWN = "md"


def report(
    profile: Annotated[
        Path, typer.Argument(help="A profile, or a run directory that was fitted.", metavar="PROFILE|RUN")
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where the report goes.")],
    kind: Annotated[Kind, typer.Option("--format", help="A web page, or Markdown.")] = Kind.HTML,
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the pictures as PNG; Markdown links to them.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
) -> None:
    """Write a report: verdict, what to paste, pictures, tables. Verdict and line are what servers left of the advice.

    A page is one file and loads nothing from anywhere. A run directory shows more than its profile: how the machine
    drifted from block to block.
    """
    from dsd_tune.cli.fitted import fitted
    from dsd_tune.cli.said import said_of
    from dsd_tune.records.proven import proven
    from dsd_tune.report.content import document
    from dsd_tune.report.html_page import page
    from dsd_tune.report.markdown import markdown
    from dsd_tune.report.plots import saved
    from dsd_tune.storage import files

    found = proven(fitted(profile))
    content = document(found, _samples(profile), said_of(found))
    pictures = {png / f"{picture.name}.png": picture for picture in content.pictures()} if png else {}
    _refuse_overwriting([out, *pictures], force=force)
    for path, picture in pictures.items():
        files.make_directory(path.parent)
        files.write_bytes(path, saved.png(picture.draw()))
    files.write_text(out, page(content) if kind is Kind.HTML else markdown(content, _seen_from(out, png)))
    typer.echo(out)


def _samples(path: Path) -> list[Block | Failure]:
    """Of a run that was measured here; an import and a lone profile have none."""
    from dsd_tune.storage import published
    from dsd_tune.storage.run_directory import RunDirectory

    return RunDirectory.open(path).timings() if path.is_dir() and not published.is_import(path) else []


def _refuse_overwriting(paths: Iterable[Path], *, force: bool) -> None:
    from dsd_tune.errors import UsageError

    there = next((path for path in paths if path.exists()), None)
    if there and not force:
        raise UsageError(f"{there} exists already.", "Name another path, or overwrite it with --force.")


def _seen_from(out: Path, folder: Path | None) -> str | None:
    import os

    return Path(os.path.relpath(folder, out.parent)).as_posix() if folder else None
