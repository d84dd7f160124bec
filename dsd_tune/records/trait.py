"""What decides what a vLLM does with a table: the closed list of traits, and the release that brought each of them."""

from __future__ import annotations

from enum import Enum

from dsd_tune.records.release import Release


class Trait(Enum):
    """One thing that the sources of a vLLM have or lack. None that a release brought was taken away since."""

    TABLES = "tables", 24, "The speculative config takes tables"
    LOOKUP = "lookup", 24, "The scheduler looks K up by batch size"
    PIECEWISE_ON_V1 = "piecewise-on-v1", 24, "Model runner V1 gives up FULL graphs under a table"
    TABLES_ON_V2 = "tables-on-v2", 25, "Model runner V2 takes tables"
    PADS_DECODES = "pads-decodes", 25, "New decodes are padded to K+1 tokens, unless there is a table"
    DATA_PARALLEL_GUARD = "data-parallel-guard", 26, "Data parallelism drops the table, instead of hanging"
    ADAPTIVE_VERIFICATION = "adaptive-verification", 28, "Adaptive verification can be switched on"
    DRAFT_SLOTS = "draft-slots", 28, "Only requests in a step take draft slots from it"
    SIZES_PER_K = "sizes-per-k", 29, "Capture sizes are chosen for each K of the table"
    V2_FOLLOWS_K = "v2-follows-k", 32, "Model runner V2 tells the drafter K"
    HYBRID_STATE = "hybrid-state", 32, "Hybrid models keep their state at K = 0"
    METHOD_GUARD = "method-guard", 33, "Methods that cannot follow a table drop it, instead of crashing"
    SKIPS_UNUSED = "skips-unused", 33, "Drafts that nobody would verify are not made"
    BLOCKS_SKIP_ZERO = "blocks-skip-zero", 33, "DFlash and DSpark draft nothing at K = 0"

    def __init__(self, code: str, minor: int, meaning: str) -> None:
        self.code = code
        self.since = Release(0, minor)
        self.meaning = meaning


Traits = frozenset[Trait]


def traits_of(release: Release) -> Traits:
    """What a vLLM of this release has, as published."""
    return frozenset(trait for trait in Trait if trait.since <= release)
