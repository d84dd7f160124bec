"""Which format a file is in, told by its contents, and the importer for it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.importers.bench_serve import bench_results, read_results
from dsd_tune.importers.bench_sweep import read_sweep
from dsd_tune.importers.csv_grid import read_csv
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Found
from dsd_tune.importers.prometheus import is_prometheus, read_scrapes
from dsd_tune.importers.schedule import ForeignTable
from dsd_tune.importers.sglang import read_sglang
from dsd_tune.importers.speculation_profile import is_speculation_profile, read_speculation_profile
from dsd_tune.importers.tensorrt_llm import read_tensorrt_llm
from dsd_tune.storage import files

_KNOWN = (
    "Known are CSV grids, results of `vllm bench serve` (JSON), folders of `vllm bench sweep serve`, Prometheus text, "
    "Model-Optimizer's speculation_profile.json, SGLang adaptive JSON and TensorRT-LLM draft_len_schedule."
)


def read_measurements(paths: Sequence[Path], declared: Declared) -> list[Found]:
    """The contents of files and folders. Prometheus scrapes are taken by twos, in the order given.

    Raises:
        UsageError: a format that is not known, or contents that cannot be used.
        ProfileMismatch: a file compares unlike environments.
    """
    folders = [path for path in dict.fromkeys(paths) if _is_folder(path)]
    texts = {path: files.read_text(path) for path in paths if path not in folders}
    scrapes = [(path, text) for path, text in texts.items() if is_prometheus(text)]
    found = [*_repeats(paths), *(read_sweep(path, declared) for path in folders)]
    found += [_read(path, text, declared) for path, text in texts.items() if (path, text) not in scrapes]
    return found + _read_scrapes(scrapes, declared)


def _repeats(paths: Sequence[Path]) -> Iterator[Found]:
    """A remark on each that was named more than once: the same numbers twice are no repetition of a measurement."""
    for path in dict.fromkeys(path for path in paths if paths.count(path) > 1):
        yield Found(remarks=(f"{path} was named more than once and is read once",))


def read_table(path: Path, max_num_seqs: int | None) -> ForeignTable | None:
    """The table in a file of another server; None if it is no such file.

    Raises:
        UsageError: it is one, and cannot be turned into a table.
    """
    document = None if _is_folder(path) else _document(path, files.read_text(path))
    if not isinstance(document, dict):
        return None
    where = path.name
    return read_tensorrt_llm(document, where, max_num_seqs) or read_sglang(document, where, max_num_seqs)


def _read(path: Path, text: str, declared: Declared) -> Found:
    if path.name == "summary.csv" and any(path.parent.glob("*/summary.json")):
        return read_sweep(path.parent, declared)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        return read_csv(path, text, declared)
    document = _document(path, text)
    if is_speculation_profile(document):
        return read_speculation_profile(document, path.name)
    if runs := bench_results(document):
        names = [path.name if len(runs) == 1 else f"{path.name}, run {number}" for number in range(len(runs))]
        return read_results(zip(names, runs, strict=True), declared)
    raise UsageError(f"{path} is in no format that is known here.", _KNOWN)


def _read_scrapes(scrapes: list[tuple[Path, str]], declared: Declared) -> list[Found]:
    if len(scrapes) == 1:
        return [read_scrapes(scrapes[0], None, declared)]
    if len(scrapes) % 2:
        raise UsageError(f"{len(scrapes)} Prometheus scrapes are no pairs.", "Give them by twos: before, after.")
    return [read_scrapes(after, before, declared) for before, after in zip(scrapes[::2], scrapes[1::2], strict=True)]


def _document(path: Path, text: str) -> object:
    """The JSON or YAML value of a file; None if it is neither."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return _yaml(path, text)
    for read in (json.loads, _json_lines):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return None


def _json_lines(text: str) -> object:
    """`vllm bench serve --append-result` writes one result a line."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _yaml(path: Path, text: str) -> object:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise UsageError(f"{path} is YAML, and PyYAML is not installed.", "Install it, or give JSON.") from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}.", "Correct the file.") from error


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Check the path.") from error
