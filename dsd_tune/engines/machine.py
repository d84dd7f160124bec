"""How the machine is doing, read once a block and outside its timed steps: about a tenth of a millisecond."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from dsd_tune.engines.nvml import Gpus
from dsd_tune.records.machine import MachineState

_CORES = 8
"""Asking a core for its frequency may wake it; of a large machine these many of our own tell enough."""

_MHZ = re.compile(r"^cpu MHz\s*:\s*([\d.]+)\n", re.MULTILINE)


def machine_state(gpus: Gpus | None, root: Path = Path("/")) -> MachineState:
    """Load average and CPU frequency of this machine, and the state of the engine's GPUs if there are any."""
    frequencies = [*_scaled_mhz(root)] or _listed_mhz(root)
    return replace(
        gpus.state() if gpus else MachineState(),
        load_average=os.getloadavg()[0],
        cpu_mhz=fmean(frequencies) if frequencies else None,
    )


def _scaled_mhz(root: Path) -> Iterator[float]:
    """What the kernel's frequency scaling says of some cores that we may use; nothing on most virtual machines."""
    for core in sorted(os.sched_getaffinity(0))[:_CORES]:
        file = root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
        # Some drivers have no such file, and some write <unknown> into it.
        with suppress(OSError, ValueError):
            yield int(file.read_text(encoding="ascii")) / 1e3


def _listed_mhz(root: Path) -> list[float]:
    """What the first cores in /proc/cpuinfo say; the kernel writes it core by core, as far as it is read."""
    cpuinfo = root / "proc/cpuinfo"
    if not cpuinfo.exists():
        return []
    with cpuinfo.open(encoding="utf-8", errors="replace") as file:
        return [float(mhz) for mhz in _MHZ.findall(file.read(1 << 14))]
