"""Which model runner vLLM chooses when nobody says, by release and method (read in 0.24 to 0.33)."""

from __future__ import annotations

from dsd_tune.model.cudagraph import Runner
from dsd_tune.records.drafter import PARALLEL_NATIVE
from dsd_tune.records.release import Release

_FIRST_V2 = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"})
"""What V2 can do from 0.25 to 0.29."""

_NEVER_V2 = frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"})

_ON_V1_UNTIL = {"ngram": Release(0, 31), "ngram_gpu": Release(0, 31), "draft_model": Release(0, 30)}


def default_runner(release: Release, method: str, *, parallel_drafting: bool, heterogeneous_vocab: bool) -> Runner:
    """The runner for a dense model on a GPU.

    From 0.25 to 0.28, a hybrid or mixture-of-experts model may get V1 instead; that needs the model to know.
    """
    if release < Release(0, 25):
        return Runner.V1
    if release < Release(0, 30) and method not in _FIRST_V2:
        return Runner.V1
    if method in _NEVER_V2 or release <= _ON_V1_UNTIL.get(method, Release(0, 0)) or heterogeneous_vocab:
        return Runner.V1
    if parallel_drafting and method not in PARALLEL_NATIVE:
        return Runner.V1
    return Runner.V2
