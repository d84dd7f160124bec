"""Methods of speculation whose acceptance at one K says nothing about another."""

from __future__ import annotations

BLOCK_DRAFTERS = frozenset({"dflash", "dspark", "pard", "p_eagle"})
"""Methods that propose all K tokens at once, so that the first ones may depend on K."""

VARIABLE_DRAFTERS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods for which K is a cap: steps without a draft exist, and rates given a draft overstate the gain."""

JUDGED_BY_K = BLOCK_DRAFTERS | VARIABLE_DRAFTERS
"""Tokens a step at one of their Ks are measured at that K, and never added up from positions."""
