"""`dsd-tune share`: a run that may be shown to anyone, as the folder of published profiles takes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsd_tune.records.profile import Profile


def share(
    run: Annotated[Path, typer.Argument(help="A run directory that was fitted.", metavar="RUN")],
    out: Annotated[Path, typer.Option("-o", "--output-dir", metavar="DIR", help="New directory for the copy.")],
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH=NAME", help="What to call a path of this machine: a public model, say."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Of an import: where its numbers were published.")] = None,
    licence: Annotated[str | None, typer.Option(help="Of an import: the licence of its source.")] = None,
) -> None:
    """Copy a run without the paths of this machine.

    Models, drafters and flags get the names that you give them; digests and numbers stay. `dsd-tune check` on the
    folder of the copy says whether it is fit to be published.
    """
    from dsd_tune.cli.fitted import fitted
    from dsd_tune.errors import UsageError
    from dsd_tune.storage import published

    names = _names(name or [])
    profile = fitted(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already.", "Name a new or empty directory.")
    origin = {key: value for key, value in (("source", source), ("licence", licence)) if value}
    if published.is_import(run):
        _share_import(run, out, profile, names, origin)
    elif origin:
        raise UsageError("a run that was measured here is its own source.", "Leave out --source and --licence.")
    else:
        _share_sweep(run, out, profile, names)
    typer.echo(out)


def _names(words: list[str]) -> dict[str, str]:
    from dsd_tune.errors import UsageError

    pairs = [word.partition("=")[::2] for word in words]
    for word, (path, name) in zip(words, pairs, strict=True):
        if not path or not name:
            raise UsageError(f"--name {word} names nothing.", "Write --name /data/llama=meta-llama/Llama-3.1-8B.")
    return dict(pairs)


def _share_import(run: Path, out: Path, profile: Profile, names: Mapping[str, str], origin: Mapping[str, str]) -> None:
    from dsd_tune.share import with_origin, without_paths
    from dsd_tune.storage import formats, published

    numbers = without_paths(with_origin(published.load(run), origin), names)
    told = without_paths(with_origin(profile, origin), names)
    published.save(out, numbers, force=False)
    formats.write(formats.PROFILE, out / "profile.json", told)


def _share_sweep(run: Path, out: Path, profile: Profile, names: Mapping[str, str]) -> None:
    from dsd_tune.share import without_paths
    from dsd_tune.storage import formats
    from dsd_tune.storage.run_directory import RunDirectory

    measured = RunDirectory.open(run)
    manifest, told = without_paths(measured.manifest, names), without_paths(profile, names)
    samples = [without_paths(sample, names) for sample in measured.samples()]
    RunDirectory.create(out, manifest).rewrite(samples)
    formats.write(formats.PROFILE, out / "profile.json", told)
