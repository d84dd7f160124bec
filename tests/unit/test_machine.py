"""The state of a machine, read from stand-ins for its files and for NVML."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsd_tune.engines.machine import machine_state
from dsd_tune.engines.nvml import Gpus
from dsd_tune.records.machine import MachineState


class NoAnswerError(Exception):
    """What the stand-in raises for a value that a GPU does not tell."""


def some_gpus(readings: Sequence[dict[str, int]]) -> Gpus:
    """GPUs that answer with `readings`: clock, power, temperature, reasons, limit; what is missing they do not tell."""

    def told(name: str) -> Any:
        def ask(gpu: dict[str, int], _kind: object = None) -> int:
            if name not in gpu:
                raise NoAnswerError
            return gpu[name]

        return ask

    nvml = SimpleNamespace(
        NVMLError=NoAnswerError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetClockInfo=told("clock"),
        nvmlDeviceGetPowerUsage=told("power"),
        nvmlDeviceGetTemperature=told("temperature"),
        nvmlDeviceGetCurrentClocksThrottleReasons=told("reasons"),
        nvmlDeviceGetEnforcedPowerLimit=told("limit"),
    )
    return Gpus(nvml, readings)


COOL = {"clock": 1980, "power": 400_000, "temperature": 55, "reasons": 0x1, "limit": 700_000}
HOT = {"clock": 1400, "power": 695_500, "temperature": 88, "reasons": 0x4 | 0x40, "limit": 650_000}


def test_the_gpu_that_holds_the_others_up_is_the_one_recorded() -> None:
    """Of several GPUs the slowest clock, the highest power and temperature, and what slows any of them count."""
    assert some_gpus([COOL, HOT]).state() == MachineState(
        gpu_mhz=1400.0,
        power_w=695.5,
        temperature_c=88.0,
        throttle_reasons=("software power cap", "hardware thermal slowdown"),
    )
    assert some_gpus([COOL, HOT]).power_limit_w() == 650.0


def test_an_idle_gpu_is_not_throttled() -> None:
    """Being idle, and clocks that somebody has set, are no reasons for a slow block."""
    assert some_gpus([COOL | {"reasons": 0x1 | 0x2}]).state().throttle_reasons == ()


def test_what_a_gpu_does_not_tell_is_not_known() -> None:
    """A reading that is not supported is None, not zero, and does not take the others with it."""
    state = some_gpus([{"clock": 1200}]).state()
    assert state == MachineState(gpu_mhz=1200.0)
    assert some_gpus([{}]).power_limit_w() is None


def test_load_and_frequency_are_those_of_the_machine(tmp_path: Path) -> None:
    """Where the kernel scales frequencies, the mean over our own cores is taken, in MHz; load comes with it."""
    core = min(os.sched_getaffinity(0))
    folder = tmp_path / f"sys/devices/system/cpu/cpu{core}/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("3200000\n")
    state = machine_state(None, tmp_path)
    assert state.cpu_mhz == 3200.0
    assert state.load_average is not None
    assert (state.gpu_mhz, state.throttle_reasons) == (None, None)


@pytest.mark.parametrize("scaled", [None, "<unknown>\n"])
def test_without_frequency_scaling_the_list_of_processors_tells(tmp_path: Path, scaled: str | None) -> None:
    """A virtual machine lists a frequency for each core, and of a long list the beginning is enough."""
    if scaled:
        folder = tmp_path / f"sys/devices/system/cpu/cpu{min(os.sched_getaffinity(0))}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(scaled)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("model name\t: some\ncpu MHz\t\t: 2600.5\n" * 4000)
    assert machine_state(None, tmp_path).cpu_mhz == 2600.5


def test_a_machine_that_says_nothing_is_no_error(tmp_path: Path) -> None:
    """Without any of the files the frequency is not known."""
    assert machine_state(None, tmp_path).cpu_mhz is None


def test_gpus_and_processor_are_recorded_together() -> None:
    """A GPU's engine is slowed by a busy host too."""
    state = machine_state(some_gpus([HOT]))
    assert state.gpu_mhz == 1400.0
    assert state.load_average is not None
