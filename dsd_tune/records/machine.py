"""How the machine was doing while a block was measured. Nothing here is compared; it explains what is odd."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineState:
    """None where the machine does not tell. `load_average` is the operating system's, over one minute."""

    load_average: float | None = None
    cpu_mhz: float | None = None
    gpu_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
