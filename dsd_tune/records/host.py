"""The machine at the moment of asking: what may make a measurement slow, or a server fail to start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Memory in MiB, clocks in MHz, power in watts; None where it does not tell."""

    name: str
    driver: str
    clock_mhz: float | None
    top_clock_mhz: float | None
    power_limit_w: float | None
    default_power_limit_w: float | None
    memory_mib: float | None
    free_mib: float | None
    slowed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """Processor, memory in bytes, and GPUs. `preloaded` are the libraries in LD_PRELOAD."""

    processor: str
    architecture: str
    cores: int
    memory_bytes: int
    free_bytes: int
    preloaded: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
