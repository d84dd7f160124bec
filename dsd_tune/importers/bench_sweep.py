"""Folders of `vllm bench sweep serve`: a folder for each server and client setting, with its runs in summary.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dsd_tune.errors import UsageError
from dsd_tune.importers.bench_serve import Result, read_results
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Found
from dsd_tune.records.measurement import Arm
from dsd_tune.storage import files


def read_sweep(folder: Path, declared: Declared) -> Found:
    """The rows of all runs.

    Raises:
        UsageError: no runs in it, or a run that cannot be read.
        ProfileMismatch: runs of unlike environments; names the key.
    """
    results = [
        (f"{summary.parent.name}, run {number}", result)
        for summary in sorted(folder.glob("*/summary.json"))
        for number, result in enumerate(_runs(summary))
    ]
    if not results:
        raise UsageError(f"{folder} holds no */summary.json.", "Name the folder that `vllm bench sweep serve` wrote.")
    if any("speculative_config" in result for _, result in results):
        # The sweep records what it varied, so an engine without that key ran without speculation.
        declared = replace(declared, k0=Arm.NO_SPEC)
    found = read_results(results, declared)
    return replace(found, remarks=(*found.remarks, _order(results)))


def _runs(summary: Path) -> list[Result]:
    runs = files.read_json(summary)
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise UsageError(f"{summary} is no list of runs.", "Restore it, or run the sweep again.")
    return runs


def _order(results: list[tuple[str, Result]]) -> str:
    dates = sorted(str(result["date"]) for _, result in results if "date" in result)
    span = f" ({dates[0]} to {dates[-1]})" if dates else ""
    return f"its engines ran one after the other{span}: drift of the machine is in every difference between arms"
