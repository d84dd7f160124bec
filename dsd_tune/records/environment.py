"""Everything that can change the answer. Two runs may be merged or compared only if these agree."""

from __future__ import annotations

from dataclasses import dataclass, fields

_NAMES_ONLY = frozenset({"model", "drafter"})
"""How the user spelled a path; its digest is what is compared."""

DUMMY = "dummy"
"""vLLM's load format that invents weights."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key on which two environments disagree, with both values."""

    key: str
    left: object
    right: object

    def __str__(self) -> str:
        return f"{self.key}: {self.left!r} against {self.right!r}"


@dataclass(frozen=True, slots=True)
class GraphUse:
    """The CUDA-graph mode vLLM really uses for an arm, and its capture sizes in tokens."""

    mode: str
    capture_sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """Fingerprint of a measurement. `graphs_*` are the effective settings, not the requested ones.

    `preloaded` are the allocators and OpenMP runtimes in the engine's process, `power_limit_w` the lowest of its GPUs,
    `synthetic_acceptance` the share of steps that were told to accept each position, in place of the drafter's own.
    """

    model: str
    model_digest: str
    drafter: str
    drafter_digest: str
    method: str
    vllm_version: str
    runner: str
    device: str
    device_name: str
    driver: str
    threads: int
    dtype: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    max_num_seqs: int
    max_model_len: int
    k_max: int
    async_scheduling: bool
    graphs_no_spec: GraphUse
    graphs_dsd: GraphUse
    graphs_static: GraphUse
    prompts_digest: str
    engine_flags: tuple[str, ...]
    torch_version: str
    cuda_version: str
    preloaded: tuple[str, ...]
    power_limit_w: float | None
    load_format: str
    synthetic_acceptance: tuple[float, ...]

    @property
    def cost_only(self) -> bool:
        """Whether step times are all that was measured: acceptance says nothing about the drafter."""
        return self.load_format == DUMMY or bool(self.synthetic_acceptance)

    @property
    def table_changes_graphs(self) -> bool:
        """Whether an engine with a fixed K runs other CUDA graphs than the table's engine at the same K."""
        return self.graphs_dsd != self.graphs_static

    def differences(self, other: Environment) -> list[Difference]:
        """The keys that forbid comparing `self` with `other`, in field order; empty where they match."""
        return [
            Difference(f.name, getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
            if f.name not in _NAMES_ONLY and getattr(self, f.name) != getattr(other, f.name)
        ]
