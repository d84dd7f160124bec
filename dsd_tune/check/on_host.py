"""Findings about the machine: what would keep a server from starting, or make it slower than it need be."""

from __future__ import annotations

from collections.abc import Iterator

from dsd_tune.check import rules_on_site as rules
from dsd_tune.records.finding import Finding
from dsd_tune.records.host import Gpu, Host

_GIB = 2**30
_WANTED = ("libtcmalloc", "libiomp")
"""What vLLM's CPU worker looks for in LD_PRELOAD, the second on x86 alone."""


def on_host(host: Host, *, cpu: bool, claimed_share: float | None) -> Iterator[Finding]:
    """`cpu`: vLLM computes there. `claimed_share` of all memory is what it takes at start; None if not known."""
    if cpu:
        yield from _on_memory("this machine", host.free_bytes, host.memory_bytes, claimed_share)
        yield from _on_preload(host)
        return
    for index, gpu in enumerate(host.gpus):
        yield from _on_gpu(f"GPU {index} ({gpu.name})", gpu, claimed_share)


def _on_memory(where: str, free: float, total: float, claimed_share: float | None) -> Iterator[Finding]:
    if claimed_share is not None and free < claimed_share * total:
        yield Finding(
            rules.MEMORY_TAKEN,
            f"vLLM claims {claimed_share:.0%} of the memory of {where}, {claimed_share * total / _GIB:.1f} GiB, but "
            f"only {free / _GIB:.1f} GiB are free.",
            "End what holds the rest, lower --gpu-memory-utilization, or set --kv-cache-memory-bytes.",
        )


def _on_preload(host: Host) -> Iterator[Finding]:
    wanted = _WANTED if host.architecture in ("x86_64", "AMD64") else _WANTED[:1]
    missing = [name for name in wanted if not any(name in library for library in host.preloaded)]
    if missing:
        yield Finding(
            rules.CPU_PRELOAD,
            f"{' and '.join(missing)} not in LD_PRELOAD. vLLM's CPU build allocates and threads faster with them, and "
            "warns of speculative decoding without Intel's OpenMP.",
            "Set LD_PRELOAD as vLLM's installation page for CPUs says, for dsd-tune and the server alike.",
        )


def _on_gpu(where: str, gpu: Gpu, claimed_share: float | None) -> Iterator[Finding]:
    if gpu.free_mib is not None and gpu.memory_mib is not None:
        yield from _on_memory(where, gpu.free_mib * 2**20, gpu.memory_mib * 2**20, claimed_share)
    if gpu.slowed_by:
        yield Finding(
            rules.GPU_SLOWED,
            f"{where} runs below its clock now: {', '.join(gpu.slowed_by)}.",
            "Measure when it is cool and fed, or under the limits that production has.",
        )
    limit, default = gpu.power_limit_w, gpu.default_power_limit_w
    if limit is not None and default is not None and limit != default:
        yield Finding(
            rules.GPU_POWER_CAPPED,
            f"{where} is limited to {limit:.0f} W; its default is {default:.0f} W.",
            "Nothing, if production has the same limit: a table holds for the limit it was measured under.",
        )
