"""Whether vLLM judges drafts at the temperature it is given. Child side: imports vLLM."""

from __future__ import annotations

from collections.abc import Iterable

from dsd_tune.errors import EnvironmentUnfit


def require_temperatures(temperatures: Iterable[float]) -> None:
    """Raise EnvironmentUnfit if drafts would be judged at others.

    The CPU build of vLLM 0.32 copies a batch's temperatures to a batch's drafts through integers and throws the copy
    away, so that a draft is accepted by what was left in memory. Asked of the function itself: a release that mends it
    is used at once.
    """
    from vllm.platforms import current_platform

    if any(temperatures) and current_platform.is_cpu() and not _keeps_temperatures():
        raise EnvironmentUnfit(
            "This vLLM judges drafts at a random temperature on CPUs, so its text and acceptance are garbage above 0.",
            "Measure at --temperature 0 here, or at yours on a GPU.",
        )


def _keeps_temperatures() -> bool:
    import torch
    from vllm.platforms import current_platform

    try:
        from vllm.utils.cpu_triton_utils import _expand_kernel_impl
    except ImportError:
        return True
    current_platform.import_kernels()
    expanded = torch.zeros(2)
    _expand_kernel_impl(expanded, torch.tensor([0.5]), torch.tensor([2]), 0, 1)
    return expanded.tolist() == [0.5, 0.5]
