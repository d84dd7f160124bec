"""The file kinds, their versions and how old ones are brought up to date: records in, text out, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from dsd_tune.errors import UsageError
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.profile import Profile
from dsd_tune.records.published import Published
from dsd_tune.records.run import Manifest, SweepRequest
from dsd_tune.records.validation import Load, ValidationRequest
from dsd_tune.records.worker import Worker
from dsd_tune.storage import codec, files
from dsd_tune.storage.upgrades import (
    load_2,
    load_3,
    load_4,
    manifest_2,
    manifest_3,
    profile_2,
    profile_3,
    profile_4,
    profile_5,
    profile_6,
    profile_7,
    profile_8,
    sample_2,
)

T = TypeVar("T")

# manifest.json
# 1 (0.1.0): first.
# 2 (0.1.0): several contexts and temperatures.
# 3 (0.1.0): versions and power limit of the environment, and what is stated instead of measured.
MANIFEST_VERSION = 3

# samples.jsonl
# 1 (0.1.0): first.
# 2 (0.1.0): condition, phase and visit of each sample, and the machine's state.
SAMPLES_VERSION = 2

# profile.json
# 1 (0.1.0): first.
# 2 (0.1.0): imports (no environment, no request, but facts), the error on cells held out, decisions without a table or
#            without no_spec, what is aimed at, and the measured batch sizes around a boundary.
# 3 (0.1.0): the capture sizes that a table needs, and where the datasheet puts the critical size.
# 4 (0.1.0): several contexts and temperatures.
# 5 (0.1.0): warnings have codes, cells and hints; comparisons say what they could have told, cells how their blocks
#            scatter, and the variance whether the machine drifted and what limits the verdict.
# 6 (0.1.0): the environment as in manifest 3; a part for each condition; cost without acceptance.
# 7 (0.1.0): what servers said of it.
# 8 (0.1.0): which other Ks the table could have as well.
PROFILE_VERSION = 8

# published.json
# 1 (0.1.0): first.
PUBLISHED_VERSION = 1

# worker.json
# 1 (0.1.0): first.
WORKER_VERSION = 1

# validation.json
# 1 (0.1.0): first.
VALIDATION_VERSION = 1

# loads.jsonl
# 1 (0.1.0): first.
# 2 (0.1.0): what the server drafted and accepted, and the length of each text.
# 3 (0.1.0): the length of each prompt, and how many drafts the server made.
# 4 (0.1.0): which vLLM served it.
LOADS_VERSION = 4

Upgrade = Callable[[object], object]

UPGRADES: dict[tuple[str, int], Upgrade] = {
    ("manifest", 1): manifest_2,
    ("manifest", 2): manifest_3,
    ("profile", 1): profile_2,
    ("profile", 2): profile_3,
    ("profile", 3): profile_4,
    ("profile", 4): profile_5,
    ("profile", 5): profile_6,
    ("profile", 6): profile_7,
    ("profile", 7): profile_8,
    ("loads", 1): load_2,
    ("loads", 2): load_3,
    ("loads", 3): load_4,
}
"""By kind and version N-1: turns a body into version N."""

SAMPLE_UPGRADES: dict[int, Callable[[object, SweepRequest], object]] = {1: sample_2}
"""By version N-1: turns one line after the header into version N. What a line does not say, the request does."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A file that holds one record: `{"format": "dsd-tune <word>", "version": <version>, "<word>": {...}}`."""

    word: str
    version: int
    record: type[T]


MANIFEST = Kind("manifest", MANIFEST_VERSION, Manifest)
PROFILE = Kind("profile", PROFILE_VERSION, Profile)
PUBLISHED = Kind("published", PUBLISHED_VERSION, Published)
WORKER = Kind("worker", WORKER_VERSION, Worker)
VALIDATION = Kind("validation", VALIDATION_VERSION, ValidationRequest)

LOADS = Kind("loads", LOADS_VERSION, Load)
"""A file of JSON lines: a header, then one record a line."""

_SAMPLES = "samples"
_SAMPLE_RECORDS: dict[str, type[Block | Failure]] = {"block": Block, "failure": Failure}


def write(kind: Kind[T], path: Path, record: T) -> None:
    """Replace the file by one that holds `record`.

    Raises:
        DsdTuneError: the disk refused; the old file is untouched.
    """
    files.write_text(path, text(kind, record) + "\n")


def text(kind: Kind[T], record: T) -> str:
    """What a file that holds `record` says, without the last newline."""
    return json.dumps(document(kind, record), indent=1, allow_nan=False)


def read(kind: Kind[T], path: Path) -> T:
    """The record in a file of this or an older version.

    Raises:
        UsageError: missing, not JSON, another kind, a newer version, or fields that make no such record.
    """
    return parse(kind, files.read_json(path), str(path))


def is_of_today(kind: Kind[Any], path: Path) -> bool:
    """Whether a file that can be read is of the newest version."""
    return _version(files.read_json(path), kind.word, kind.version, str(path)) == kind.version


def document(kind: Kind[T], record: T) -> dict[str, Any]:
    """What a file of `kind` holds: the JSON value of `record` with its header."""
    return {**_header(kind.word, kind.version), kind.word: codec.encode(record)}


def parse(kind: Kind[T], document: object, where: str) -> T:
    """The record in a document of this or an older version, which was found at `where`.

    Raises:
        UsageError: another kind, a newer version, or fields that make no such record.
    """
    version = _version(document, kind.word, kind.version, where)
    body = cast(dict[str, object], document).get(kind.word)
    return _decoded(kind.record, _upgraded(kind.word, version, kind.version, body), kind.word, where)


def write_samples(path: Path, samples: Iterable[Block | Failure]) -> None:
    """Replace the file by a header of the current version and `samples`.

    Raises:
        DsdTuneError: the disk refused; the old file is untouched.
    """
    _write_rows(path, _header(_SAMPLES, SAMPLES_VERSION), map(_sample_body, samples))


def append_sample(path: Path, sample: Block | Failure) -> None:
    """Add one line to a file of the current version, and wait until it is on the disk.

    Raises:
        DsdTuneError: the disk refused; the file is as it was.
    """
    files.append_line(path, _compact(_sample_body(sample)))


def read_samples(path: Path, request: SweepRequest, *, with_prompts: bool = True) -> tuple[int, list[Block | Failure]]:
    """The version the file was written in, and its samples in the order of measuring, which `request` asked for.

    Without prompts, blocks have no token counts, and a large file is read in a third of the time.

    Raises:
        UsageError: missing, another kind, a newer version, or a finished line that holds no sample.
    """
    lines = files.read_json_lines(path)
    version = _version(lines[0] if lines else None, _SAMPLES, SAMPLES_VERSION, str(path))
    return version, [
        _sample(_sample_upgraded(line, version, request), f"{path}, line {number},", with_prompts=with_prompts)
        for number, line in enumerate(lines[1:], start=2)
    ]


def sample_document(sample: Block | Failure) -> dict[str, Any]:
    """One sample by itself, outside a file: its line with the header in the same object."""
    return {**_header(_SAMPLES, SAMPLES_VERSION), **_sample_body(sample)}


def parse_sample(document: object, request: SweepRequest, where: str) -> Block | Failure:
    """The sample in a document of this or an older version, which was found at `where`.

    Raises:
        UsageError: another kind, a newer version, or no sample.
    """
    version = _version(document, _SAMPLES, SAMPLES_VERSION, where)
    line = {key: value for key, value in cast(dict[str, object], document).items() if key not in ("format", "version")}
    return _sample(_sample_upgraded(line, version, request), where, with_prompts=True)


def write_lines(kind: Kind[T], path: Path, records: Iterable[T]) -> None:
    """Replace the file by a header and `records`, one a line.

    Raises:
        DsdTuneError: the disk refused; the old file is untouched.
    """
    _write_rows(path, _header(kind.word, kind.version), map(codec.encode, records))


def append_line(path: Path, record: Load) -> None:
    """Add one record to a file of JSON lines of the current version, and wait until it is on the disk.

    Raises:
        DsdTuneError: the disk refused; the file is as it was.
    """
    files.append_line(path, _compact(codec.encode(record)))


def read_lines(kind: Kind[T], path: Path) -> list[T]:
    """The records of a file in their order. A line that a crash left unfinished is none.

    Raises:
        UsageError: missing, another kind, a newer version, or a finished line that holds no such record.
    """
    lines = files.read_json_lines(path)
    version = _version(lines[0] if lines else None, kind.word, kind.version, str(path))
    return [
        _decoded(kind.record, _upgraded(kind.word, version, kind.version, line), kind.word, f"{path}, line {number},")
        for number, line in enumerate(lines[1:], start=2)
    ]


def _write_rows(path: Path, header: object, rows: Iterable[object]) -> None:
    files.write_text(path, "".join(f"{_compact(row)}\n" for row in (header, *rows)))


def _sample_body(sample: Block | Failure) -> dict[str, object]:
    return {"block" if isinstance(sample, Block) else "failure": codec.encode(sample)}


def _sample(line: object, where: str, *, with_prompts: bool) -> Block | Failure:
    if not isinstance(line, dict) or len(line) != 1 or not line.keys() <= _SAMPLE_RECORDS.keys():
        raise _damaged(where, "expected one object named block or failure")
    ((word, body),) = line.items()
    if not with_prompts and isinstance(body, dict) and "prompts" in body:
        body = {**body, "prompts": []}
    return _decoded(_SAMPLE_RECORDS[word], body, word, where)


def _header(word: str, version: int) -> dict[str, object]:
    return {"format": f"dsd-tune {word}", "version": version}


def _version(document: object, word: str, newest: int, where: str) -> int:
    """The version of a document or header, once it is known to be of the right kind and no newer than we are."""
    found = document if isinstance(document, dict) else {}
    if found.get("format") != f"dsd-tune {word}":
        raise UsageError(f"{where} is no dsd-tune {word}.", f"Name a file that dsd-tune wrote as its {word}.")
    version = found.get("version")
    if type(version) is not int or version < 1:
        raise _damaged(where, f"version {version!r} never existed")
    if version > newest:
        raise UsageError(f"{where} was written by a newer dsd-tune (version {version}).", "Upgrade dsd-tune.")
    return version


def _upgraded(word: str, version: int, newest: int, body: object) -> object:
    for old in range(version, newest):
        body = UPGRADES[word, old](body)
    return body


def _sample_upgraded(line: object, version: int, request: SweepRequest) -> object:
    for old in range(version, SAMPLES_VERSION):
        line = SAMPLE_UPGRADES[old](line, request)
    return line


def _decoded(record: type[T], body: object, word: str, where: str) -> T:
    try:
        return codec.decode(record, body, word)
    except ValueError as error:
        raise _damaged(where, str(error)) from error


def _damaged(where: str, why: str) -> UsageError:
    return UsageError(f"{where} is damaged: {why}.", "Restore the file from a copy, or measure again.")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
