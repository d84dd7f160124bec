"""A folder of profiles to be published: what keeps each from being one that others can read, trust and repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.published import ORIGIN, Published
from dsd_tune.records.run import Manifest
from dsd_tune.storage import files, formats, naming, published
from dsd_tune.storage.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory of the folder; `verdict` is None where its profile cannot be read."""

    name: str
    verdict: Verdict | None
    faults: tuple[str, ...]


def entries(folder: Path) -> list[Entry]:
    """Every directory in the folder by name, with what is wrong with it, as sentences.

    Raises:
        UsageError: there is none.
    """
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not found:
        raise UsageError(f"{folder} holds no run directory.", "Name a folder of runs, such as profiles/.")
    readme = folder / "README.md"
    listed = files.read_text(readme) if readme.is_file() else ""
    return [_entry(path, listed) for path in found]


def _entry(run: Path, listed: str) -> Entry:
    unlisted = [] if f"`{run.name}`" in listed else [f"{run.parent / 'README.md'} does not name `{run.name}`."]
    try:
        profile = formats.read(formats.PROFILE, run / "profile.json")
        faults = list((_of_import if published.is_import(run) else _of_run)(run, profile))
    except UsageError as error:
        return Entry(run.name, None, (str(error), *unlisted))
    return Entry(run.name, profile.decision.verdict, (*faults, *unlisted))


def _of_import(run: Path, profile: Profile) -> Iterator[str]:
    numbers = published.load(run)
    yield from _old(run, formats.PROFILE, formats.PUBLISHED)
    for key in ORIGIN:
        if not numbers.fact(key) or numbers.fact(key) != profile.fact(key):
            yield f"its {key} is not stated. Share it with --{key}."
    yield from _local(profile, numbers)


def _of_run(run: Path, profile: Profile) -> Iterator[str]:
    measured = RunDirectory.open(run)
    samples = measured.samples()
    yield from _old(run, formats.PROFILE, formats.MANIFEST)
    if profile.environment is None or profile.environment.differences(measured.manifest.environment):
        yield "its profile was not fitted from the run beside it. Run dsd-tune fit on it."
    if not any(isinstance(sample, Block) for sample in samples):
        yield "its samples hold no block. Share a run that measured something."
    yield from _local(profile, measured.manifest, *samples)


def _old(run: Path, *kinds: formats.Kind[Profile] | formats.Kind[Manifest] | formats.Kind[Published]) -> Iterator[str]:
    for kind in kinds:
        name = f"{kind.word}.json"
        if not formats.is_of_today(kind, run / name):
            yield f"{name} is of an older format than {kind.version}. Share it anew from its run."


def _local(*records: Profile | Manifest | Published | Block | Failure) -> Iterator[str]:
    found = dict.fromkeys(path for record in records for path in naming.paths(record))
    for path in found:
        yield f"{path} is a path of one machine. Share the run with --name {path}=NAME."
