"""Kinds of methods of speculation, by how they come to their drafts."""

from __future__ import annotations

BLOCK_DRAFTERS = frozenset({"dflash", "dspark", "pard", "p_eagle"})
"""Methods that propose all K tokens at once, so that the first ones may depend on K."""

PARALLEL_NATIVE = frozenset({"dflash", "dspark"})
"""Those of them that vLLM itself makes draft in parallel, and that still follow a smaller K."""

DRAFTER_FREE_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that propose from the text itself. K is a cap: steps without a draft exist, and rates given a draft overstate
the gain."""

JUDGED_BY_K = BLOCK_DRAFTERS | DRAFTER_FREE_METHODS
"""Methods whose acceptance at one K says nothing about another: tokens a step are measured at each K by itself."""
