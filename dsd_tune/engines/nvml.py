"""The GPUs of an engine through NVML, where vLLM or the environment brings its binding. Child side: imports vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from dsd_tune.records.machine import MachineState

SLOWING = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""NVML's reasons for a lowered clock. An idle GPU and clocks that somebody has set (0x1, 0x2) are none."""


class Gpus:
    """What NVML says about the GPUs of one engine. A value is None where none of them tells it."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    def state(self) -> MachineState:
        """The slowest clock, the highest power and temperature, and every reason that slows any of them down."""
        nvml = self._nvml
        clocks = self._read(lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))
        power_mw = self._read(nvml.nvmlDeviceGetPowerUsage)
        temperatures = self._read(lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
        reasons = self._read(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return MachineState(
            gpu_mhz=min(map(float, clocks), default=None),
            power_w=max((mw / 1e3 for mw in power_mw), default=None),
            temperature_c=max(map(float, temperatures), default=None),
            throttle_reasons=_named(reasons) if reasons else None,
        )

    def power_limit_w(self) -> float | None:
        """The lowest power limit in force, in watts."""
        return min((mw / 1e3 for mw in self._read(self._nvml.nvmlDeviceGetEnforcedPowerLimit)), default=None)

    def driver(self) -> str:
        """The driver's version."""
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def _read(self, ask: Callable[[Any], Any]) -> list[Any]:
        """One answer a GPU; what a GPU does not support is left out."""
        answers = []
        for gpu in self._handles:
            with suppress(self._nvml.NVMLError):
                answers.append(ask(gpu))
        return answers


def engine_gpus(count: int) -> Gpus | None:
    """The first `count` GPUs that vLLM sees; None without NVML, or where they have no index, as parts of a GPU."""
    from vllm.platforms import current_platform

    nvml = _binding() if current_platform.is_cuda() else None
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        places = [current_platform.device_id_to_physical_device_id(i) for i in range(count)]
        return Gpus(nvml, [nvml.nvmlDeviceGetHandleByIndex(place) for place in places])
    except (nvml.NVMLError, ValueError, IndexError):
        return None


def _binding() -> Any:
    for name in ("vllm.third_party.pynvml", "pynvml"):
        with suppress(ImportError):
            return import_module(name)
    return None


def _named(masks: Sequence[int]) -> tuple[str, ...]:
    return tuple(reason for bit, reason in SLOWING.items() if any(mask & bit for mask in masks))
