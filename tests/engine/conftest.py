"""What tests on a real vLLM have in common."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for an engine: a tiny model needs no more, and two wait for each other on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def quiet_cores(one_thread: None) -> Iterator[None]:
    """One thread for each server, on whichever core is free."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        yield
