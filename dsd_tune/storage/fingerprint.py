"""Digests of what was measured: model, drafter, prompts. Standard library only; reads little of large files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dsd_tune.records.prompt import Prompt

_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_SAMPLE_BYTES = 1 << 20


def model_digest(model: str) -> str:
    """Digest of a model given as a folder, a file, or a name on a hub.

    A folder's digest covers config.json, the names and sizes of all its files and the first and last MiB of
    each weight file: milliseconds for any size, equal for equal copies, and different whenever a checkpoint
    was retrained, though not for every change of a byte in the middle. A hub's model is known by the commit
    of its cached snapshot, or by its name alone where nothing is cached.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return _digest(_folder_parts(path))
    if path.is_file():
        return _digest(_file_parts(path))
    snapshot = cached_snapshot(model)
    return f"{model}@{snapshot.name}" if snapshot else model


def drafter_digest(speculative_config: Mapping[str, object]) -> str:
    """Digest of the drafter and all its settings, except K, which is what is being measured."""
    skipped = {"model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size"}
    settings = {key: value for key, value in speculative_config.items() if key not in skipped}
    weights = model_digest(str(speculative_config["model"])) if "model" in speculative_config else ""
    return _digest([weights.encode(), json.dumps(settings, sort_keys=True).encode()])


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Digest of all prompts in their order."""
    return _digest(json.dumps([prompt.id, prompt.text]).encode() for prompt in prompts)


def local_folder(model: str) -> Path | None:
    """Where a model's files are on this machine, if they are."""
    path = Path(model).expanduser()
    return path if path.exists() else cached_snapshot(model)


def weight_bytes(model: str) -> int | None:
    """Size of a model's weight files; None if they are not on this machine."""
    folder = local_folder(model)
    if folder is None:
        return None
    files = [folder] if folder.is_file() else folder.iterdir()
    return sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS)


def cached_snapshot(name: str) -> Path | None:
    """The folder of a hub's model in the local cache, at the commit that `main` points to."""
    cache = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    root = Path(cache or f"{home}/hub").expanduser() / f"models--{name.replace('/', '--')}"
    main = root / "refs" / "main"
    if not main.is_file():
        return None
    snapshot = root / "snapshots" / main.read_text(encoding="utf-8").strip()
    return snapshot if snapshot.is_dir() else None


def _digest(parts: Iterable[bytes]) -> str:
    """Each part's own digest goes in, so that parts cannot run into each other."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()


def _folder_parts(folder: Path) -> Iterable[bytes]:
    config = folder / "config.json"
    yield config.read_bytes() if config.is_file() else b""
    for file in sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")):
        yield f"{file.name} {file.stat().st_size}".encode()
        if file.suffix in _WEIGHTS:
            yield from _file_parts(file)


def _file_parts(file: Path) -> Iterable[bytes]:
    with file.open("rb") as weights:
        yield weights.read(_SAMPLE_BYTES)
        weights.seek(max(0, file.stat().st_size - _SAMPLE_BYTES))
        yield weights.read()
