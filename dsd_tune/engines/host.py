"""Reads the state of this machine. Standard library only; GPUs through the tool that comes with their driver."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from dsd_tune.engines.nvml import SLOWING
from dsd_tune.records.host import Gpu, Host

_FIELDS = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "power.limit",
    "power.default_limit",
    "memory.total",
    "memory.free",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""What the last field is called; older drivers know the second name only."""

_LIMIT_S = 60
"""A driver that was not loaded yet takes many seconds to answer."""


def this_host() -> Host:
    """What is known of this machine without loading anything."""
    total, free = _memory()
    return Host(
        processor=_processor(),
        architecture=platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=total,
        free_bytes=free,
        preloaded=tuple(Path(name).name for name in re.split(r"[:\s]+", os.environ.get("LD_PRELOAD", "")) if name),
        gpus=tuple(read_gpus(next(filter(None, map(_nvidia_smi, _REASONS)), ""))),
    )


def _memory() -> tuple[int, int]:
    """All memory, and what of it could be had without swapping, in bytes."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    available = re.search(r"^MemAvailable:\s+(\d+)", _text("/proc/meminfo"), re.MULTILINE)
    return pages, int(available[1]) * 1024 if available else pages


def read_gpus(answer: str) -> Iterator[Gpu]:
    """From what nvidia-smi prints for `_FIELDS` and the reasons for a lowered clock, one line a GPU."""
    for line in answer.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(_FIELDS) + 1:
            clock, top_clock, limit, default_limit, memory, free = map(_number, values[2:8])
            yield Gpu(
                name=values[0],
                driver=values[1],
                clock_mhz=clock,
                top_clock_mhz=top_clock,
                power_limit_w=limit,
                default_power_limit_w=default_limit,
                memory_mib=memory,
                free_mib=free,
                slowed_by=_slowing(values[8]),
            )


def _nvidia_smi(reasons: str) -> str:
    """Its answer; empty where there is no such tool, no GPU, or no such field."""
    command = ["nvidia-smi", f"--query-gpu={','.join((*_FIELDS, reasons))}", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command.append(f"--id={visible}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _number(text: str) -> float | None:
    """None for `[N/A]` and its kind."""
    try:
        return float(text)
    except ValueError:
        return None


def _slowing(mask: str) -> tuple[str, ...]:
    active = int(mask, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", mask) else 0
    return tuple(reason for bit, reason in SLOWING.items() if active & bit)


def _processor() -> str:
    named = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def _text(file: str) -> str:
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.exists() else ""
