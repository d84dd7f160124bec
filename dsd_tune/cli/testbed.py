"""`dsd-tune testbed`: a small real model with real drafters, to try everything without a GPU or a download."""

from __future__ import annotations

import typer

testbed = typer.Typer(
    name="testbed",
    help="A small real model to try everything on.",
    no_args_is_help=True,
)


@testbed.callback()
def _group() -> None:
    """SmolLM2-135M-Instruct with two drafters trained for it: everything runs on two CPU cores, no download."""


@testbed.command()
def prepare() -> None:
    """Convert the target model once into the cache and put the shipped drafters beside it."""
    from dsd_tune.testbed.prepare import prepare as prepare_testbed

    ready = prepare_testbed(lambda line: typer.echo(line, err=True))
    for path in (ready.target, ready.eagle, ready.eagle3, ready.prompts):
        typer.echo(path)
