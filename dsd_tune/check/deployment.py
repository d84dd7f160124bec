"""A planned `vllm serve`, as far as a table cares: what the user wrote, and what vLLM makes of it by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsd_tune.check.reading import lax_int
from dsd_tune.check.runner import default_runner
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.model.cudagraph import CudagraphMode, Runner
from dsd_tune.records.finding import Rule
from dsd_tune.records.release import Release
from dsd_tune.records.trait import Traits, traits_of

ASSUMED_MAX_NUM_SEQS = 256
"""vLLM's default on GPUs below 70 GiB; larger ones get 1024."""

_LARGEST_BATCH = 65536
"""Far above what any server runs; a typing error beyond it would be looked up one batch size at a time."""

_NAMES_OF_NGRAM = frozenset({"ngram", "[ngram]"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """None stands for: not given, vLLM decides. `speculative_config` is the JSON object, unchecked.

    `source_traits` are those seen in the vLLM that will run; None if nobody looked, and its release decides.
    `hybrid` says whether the model has recurrent layers; None if nobody knows.
    """

    speculative_config: Mapping[str, object]
    release: Release
    cpu: bool = False
    model: str | None = None
    asked_runner: Runner | None = None
    asked_max_num_seqs: int | None = None
    data_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    tensor_parallel_size: int = 1
    max_num_batched_tokens: int | None = None
    cudagraph_mode: CudagraphMode = CudagraphMode.FULL_AND_PIECEWISE
    capture_sizes: tuple[int, ...] | None = None
    max_capture_size: int | None = None
    mamba_cache_mode: str | None = None
    lora: bool = False
    kv_transfer: bool = False
    source_traits: Traits | None = None
    hybrid: bool | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "data_parallel_size", "pipeline_parallel_size", "tensor_parallel_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.max_num_seqs > _LARGEST_BATCH:
            raise ValueError(f"max_num_seqs must be {_LARGEST_BATCH} or less, got {self.max_num_seqs}")

    def shows(self, rule: Rule) -> bool:
        """Whether the vLLM that will run behaves as this rule says."""
        return rule.holds_for(self.traits)

    @property
    def traits(self) -> Traits:
        """What this vLLM has."""
        return traits_of(self.release) if self.source_traits is None else self.source_traits

    @property
    def max_num_seqs(self) -> int:
        """The largest batch size."""
        return ASSUMED_MAX_NUM_SEQS if self.asked_max_num_seqs is None else self.asked_max_num_seqs

    @property
    def method(self) -> str:
        """The method under its present name. The config inside a draft model may still turn it into another."""
        named = self.speculative_config.get("method")
        drafter = self.speculative_config.get("model")
        if named is None and drafter in _NAMES_OF_NGRAM:
            return "ngram"
        if named in (None, "draft_model"):
            return _method_by_name(str(drafter or ""))
        if str(named).endswith("_mtp"):
            return "mtp"
        return "ngram" if named in _NAMES_OF_NGRAM else str(named)

    @property
    def parallel_drafting(self) -> bool:
        """Whether PARD or P-EAGLE is asked for."""
        return bool(self.speculative_config.get("parallel_drafting", False))

    @property
    def adaptive_verification(self) -> bool:
        """Whether vLLM trims the drafts by itself."""
        return bool(self.speculative_config.get("enable_adaptive_verification", False))

    @property
    def runner(self) -> Runner:
        """The model runner asked for, or else vLLM's choice. The CPU build runs V1."""
        if self.asked_runner is not None:
            return self.asked_runner
        if self.cpu:
            return Runner.V1
        return default_runner(
            self.release,
            self.method,
            parallel_drafting=self.parallel_drafting,
            heterogeneous_vocab=bool(self.speculative_config.get("use_heterogeneous_vocab", False)),
        )

    @property
    def has_table(self) -> bool:
        """Whether a table is given, be it empty or wrong."""
        return self.raw_table is not None

    @property
    def raw_table(self) -> object:
        """The table as written; None if there is none."""
        return self.speculative_config.get(TABLE_FIELD)

    @property
    def k_max(self) -> int | None:
        """`num_speculative_tokens`; None if it is missing or impossible."""
        k_max = lax_int(self.speculative_config.get("num_speculative_tokens"))
        return k_max if k_max is not None and k_max > 0 else None

    @property
    def k_max_from_model(self) -> bool:
        """Whether vLLM fills a missing K_max from the draft model's own config."""
        return self.speculative_config.get("num_speculative_tokens") is None and self.method in ("mtp", "dspark")


def _method_by_name(drafter: str) -> str:
    """As vLLM guesses it from the name of a draft model."""
    name = drafter.lower()
    for part, method in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        if part in name:
            return method
    return "draft_model"
