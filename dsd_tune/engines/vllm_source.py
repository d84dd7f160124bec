"""Finds a vLLM and reads its sources, without importing anything of it: which traits do they show?"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dsd_tune.errors import EnvironmentUnfit, UsageError
from dsd_tune.records.source import VllmSource
from dsd_tune.records.trait import Trait

_CONFIG = "config/vllm.py"
_SPECULATIVE = "config/speculative.py"
_SCHEDULER = "v1/core/sched/scheduler.py"
_V2 = "v1/worker/gpu"


@dataclass(frozen=True, slots=True)
class Mark:
    """What gives a trait away: a kind of syntax node with a name, in a file of the package."""

    file: str
    kind: type[ast.AST]
    name: str


MARKS = {
    Trait.TABLES: Mark(_SPECULATIVE, ast.AnnAssign, "num_speculative_tokens_per_batch_size"),
    Trait.LOOKUP: Mark(_SCHEDULER, ast.Subscript, "dynamic_sd_lookup"),
    Trait.PIECEWISE_ON_V1: Mark(_CONFIG, ast.Call, "_maybe_override_dynamic_sd_cudagraph_mode"),
    Trait.TABLES_ON_V2: Mark(f"{_V2}/cudagraph_utils.py", ast.Call, "uses_dynamic_speculative_decoding"),
    Trait.PADS_DECODES: Mark(_SCHEDULER, ast.Name, "pad_spec_decode"),
    Trait.DATA_PARALLEL_GUARD: Mark(_CONFIG, ast.Call, "_maybe_disable_dynamic_sd_for_data_parallel"),
    Trait.ADAPTIVE_VERIFICATION: Mark(_SPECULATIVE, ast.AnnAssign, "enable_adaptive_verification"),
    Trait.DRAFT_SLOTS: Mark(_SCHEDULER, ast.Name, "draft_slots"),
    Trait.SIZES_PER_K: Mark(_CONFIG, ast.Call, "build_dynamic_sd_schedule_lookup"),
    Trait.V2_FOLLOWS_K: Mark(f"{_V2}/spec_decode/speculator.py", ast.arg, "num_speculative_tokens"),
    Trait.HYBRID_STATE: Mark("v1/worker/gpu_model_runner.py", ast.Name, "zero_draft_decode_mask"),
    Trait.METHOD_GUARD: Mark(_CONFIG, ast.Call, "_maybe_disable_dynamic_sd_for_v1"),
    Trait.SKIPS_UNUSED: Mark("v1/core/sched/output.py", ast.AnnAssign, "skip_drafts"),
    Trait.BLOCKS_SKIP_ZERO: Mark(f"{_V2}/spec_decode/dflash/speculator.py", ast.Compare, "num_speculative_tokens"),
}
"""Where to look for what. Read in 0.24 to 0.33; each name came with its trait and with nothing else."""

_ESSENTIAL = (_SPECULATIVE, _SCHEDULER)
"""Files that every vLLM of the last years has."""

_VERSION = re.compile(r"""^__version__\b.*=\s*["']([^"']+)["']""", re.MULTILINE)

_DISTRIBUTION = re.compile(r"vllm(_cpu)?-")


def find(path: Path | None) -> Path:
    """The folder of a `vllm` package: in an unpacked wheel or a checkout, or by default the one that is installed.

    Raises:
        UsageError: there is none in `path`.
        EnvironmentUnfit: none is installed.
    """
    if path is not None:
        return _unpacked(path)
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        raise EnvironmentUnfit(
            "vLLM is not installed beside dsd-tune.", "Install it there, or name one with --vllm-path or --url."
        )
    return Path(spec.origin).parent


def _unpacked(path: Path) -> Path:
    for folder in (path, path / "vllm"):
        if all((folder / file).is_file() for file in _ESSENTIAL):
            return folder
    raise UsageError(f"There is no vLLM in {path}.", "Name the folder that holds vllm/config/speculative.py.")


def look(folder: Path) -> VllmSource:
    """Read the package in `folder`.

    Raises:
        EnvironmentUnfit: a file cannot be read, or not as Python.
    """
    names = cache(_names)
    there = {trait: mark for trait, mark in MARKS.items() if (folder / mark.file).is_file()}
    seen = frozenset(t for t, mark in there.items() if (mark.kind, mark.name) in names(folder / mark.file))
    named = [found.name for found in folder.parent.glob("*.dist-info") if _DISTRIBUTION.match(found.name)]
    cpu = any("cpu" in name for name in named)
    return VllmSource(str(folder), _version(folder, named), cpu, seen, frozenset(there) - seen)


def _names(file: Path) -> frozenset[tuple[type[ast.AST], str]]:
    """Every kind of node with the names that it has in a file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise EnvironmentUnfit(f"{file} cannot be read as Python: {error}.", "Reinstall vLLM.") from error
    return frozenset((type(node), name) for node in ast.walk(tree) if (name := _name(node)) is not None)


def _name(node: ast.AST) -> str | None:
    """The name that a node defines or uses, without what it belongs to."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case ast.AnnAssign(target=part) | ast.Subscript(value=part) | ast.Call(func=part) | ast.Compare(left=part):
            return _name(part)
        case _:
            return None


def _version(folder: Path, named: list[str]) -> str:
    """As the package says itself, or else as it was installed; empty if nobody says."""
    file = folder / "_version.py"
    stated = _VERSION.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    if stated is not None:
        return stated[1]
    return next((name.split("-")[1].removesuffix(".dist") for name in named), "")
