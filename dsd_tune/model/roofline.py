"""Where a GPU's datasheet puts the critical size: the tokens in flight at which arithmetic outlasts reading weights."""

from __future__ import annotations

import re

from dsd_tune.records.environment import Environment

_BYTES = {"bfloat16": 2, "float16": 2}
"""Bytes a weight, by dtype. fp8 weights and arithmetic halve bytes and double FLOPs, which is the same size again."""

_GPUS = {
    "NVIDIA A100-SXM4-40GB": (312, 1.555),
    "NVIDIA A100-SXM4-80GB": (312, 2.039),
    "NVIDIA A100 80GB PCIe": (312, 1.935),
    "NVIDIA B200": (2250, 8.0),
    "NVIDIA GB200": (2500, 8.0),
    "NVIDIA H100 80GB HBM3": (989, 3.35),
    "NVIDIA H100 PCIe": (756, 2.0),
    "NVIDIA H200": (989, 4.8),
    "NVIDIA L4": (121, 0.3),
    "NVIDIA L40S": (362, 0.864),
}
"""TFLOP/s of dense 16-bit tensor arithmetic and TB/s of memory, by the driver's name. From NVIDIA's datasheets, which
mostly state FLOPs with sparsity: half of that."""


def roofline_tokens(environment: Environment) -> float | None:
    """Tokens in flight, peak FLOPs * bytes a weight / (2 * bandwidth); None for a GPU or dtype that is not known.

    A token takes 2 FLOPs a weight (Williams et al., Roofline, CACM 52(4), 2009). Attention, sampling, drafter and
    launches are left out, so what is measured is usually lower.
    """
    gpu, width = _GPUS.get(environment.device_name), _BYTES.get(environment.dtype)
    return None if gpu is None or width is None else _ridge(gpu, width)


def roofline_of(gpu: str) -> float | None:
    """The same for 16-bit weights on a GPU that somebody named in passing, such as "GB200 x2".

    None where that is no GPU known here, or may be one of several, as H100 may.
    """
    chips = {re.sub(r"^\d+x", "", word) for word in re.split(r"[\s,-]+", gpu)}
    found = [figures for name, figures in _GPUS.items() if re.split(r"[\s-]", name)[1] in chips]
    return _ridge(found[0], 2) if len(found) == 1 else None


def _ridge(figures: tuple[float, float], width: int) -> float:
    tera_flops, tera_bytes = figures
    return tera_flops * width / (2 * tera_bytes)
