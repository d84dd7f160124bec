"""Small trees of source files that show a trait of vLLM or do not."""

from collections.abc import Iterable
from pathlib import Path

from dsd_tune.records.trait import Trait

FILES: dict[str, dict[Trait | None, str]] = {
    "config/speculative.py": {
        None: "class SpeculativeConfig:\n    method: str | None = None",
        Trait.TABLES: "    num_speculative_tokens_per_batch_size: list[tuple[int, int, int]] | None = None",
        Trait.ADAPTIVE_VERIFICATION: "    enable_adaptive_verification: bool = False",
    },
    "config/vllm.py": {
        None: "def settle(self):\n    self.settled = True",
        Trait.PIECEWISE_ON_V1: "    self._maybe_override_dynamic_sd_cudagraph_mode()",
        Trait.DATA_PARALLEL_GUARD: "    self._maybe_disable_dynamic_sd_for_data_parallel()",
        Trait.METHOD_GUARD: "    self._maybe_disable_dynamic_sd_for_v1()",
        Trait.SIZES_PER_K: "    sizes = build_dynamic_sd_schedule_lookup(self.table)",
    },
    "v1/core/sched/scheduler.py": {
        None: "def schedule(self, scheduled):\n    self.dynamic_sd_lookup = None  # dynamic_sd_lookup[1]",
        Trait.LOOKUP: "    k = self.dynamic_sd_lookup[len(scheduled)]",
        Trait.PADS_DECODES: "    pad_spec_decode = False",
        Trait.DRAFT_SLOTS: "    draft_slots = 0",
    },
    "v1/core/sched/output.py": {
        None: "class SchedulerOutput:\n    k: int",
        Trait.SKIPS_UNUSED: "    skip_drafts: bool",
    },
    "v1/worker/gpu_model_runner.py": {None: "", Trait.HYBRID_STATE: "zero_draft_decode_mask = None"},
    "v1/worker/gpu/cudagraph_utils.py": {
        None: "def capture(config):\n    pass",
        Trait.TABLES_ON_V2: "    per_k = config.uses_dynamic_speculative_decoding()",
    },
    "v1/worker/gpu/spec_decode/speculator.py": {
        None: '"""Takes no num_speculative_tokens."""',
        Trait.V2_FOLLOWS_K: "def propose(self, num_speculative_tokens=None): ...",
    },
    "v1/worker/gpu/spec_decode/dflash/speculator.py": {
        None: "def propose(self, num_speculative_tokens):\n    pass",
        Trait.BLOCKS_SKIP_ZERO: "    return None if num_speculative_tokens == 0 else self",
    },
}
"""The lines that show each trait; under None what is always there, with words that must not be mistaken for one."""


def a_vllm(folder: Path, traits: Iterable[Trait], version: str = "0.33.0") -> Path:
    """The folder `vllm` of a tree that shows these traits and calls itself `version`."""
    shown = {None, *traits}
    for name, parts in FILES.items():
        file = folder / "vllm" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line for trait, line in parts.items() if trait in shown) + "\n")
    if version:
        (folder / "vllm" / "_version.py").write_text(f"version: str\n__version__ = version = '{version}'\n")
    return folder / "vllm"
