"""Findings about release, model runner, method and parallelism: who honours a table, and who crashes on it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsd_tune.check import rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.reading import Rejected, read
from dsd_tune.engines.vllm_facts import METHODS_WITHOUT_TABLE, PARALLEL_DRAFTING
from dsd_tune.model.cudagraph import Runner
from dsd_tune.records.drafter import DRAFTER_FREE_METHODS, PARALLEL_NATIVE
from dsd_tune.records.finding import Finding
from dsd_tune.records.release import Release
from dsd_tune.records.trait import Trait, Traits

_HYBRID = re.compile(r"qwen3[-_]?next|qwen3[._]5|nemotron[-_]?h\b|nemotron[-_]?3|kimi[-_]?linear", re.IGNORECASE)
"""Names of models with recurrent layers. Others exist, so no match proves nothing."""

_AUTOREGRESSIVE = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
"""Drafters that run once for each draft token."""

_FIXED_LENGTH_V2 = {
    "draft_model": "runs its draft model",
    "dflash": "drafts its block",
    "dspark": "drafts its block",
    "ngram": "matches",
    "ngram_gpu": "matches",
}
"""Methods that model runner V2 does not tell K, with what they then do num_speculative_tokens long."""

_ENGINE_STOPPERS = frozenset({"ngram_gpu", "suffix", "medusa", "extract_hidden_states"})


def drops_table(deployment: Deployment) -> bool:
    """Whether this vLLM sets the table aside and uses `num_speculative_tokens` throughout."""
    if deployment.shows(rules.DP_DROPS) and deployment.data_parallel_size > 1:
        return True
    return deployment.shows(rules.TABLE_UNREAD) or (
        deployment.shows(rules.METHOD_DROPS)
        and deployment.runner is Runner.V1
        and deployment.method in METHODS_WITHOUT_TABLE
    )


def on_tables(release: Release, traits: Traits) -> Iterator[Finding]:
    """Findings that hold for every table."""
    if rules.NO_SUCH_FIELD.holds_for(traits):
        yield Finding(
            rules.NO_SUCH_FIELD,
            f"vLLM {release} knows no num_speculative_tokens_per_batch_size and refuses the config.",
            "Upgrade to 0.32 or later, or use a fixed K.",
        )
    if rules.TABLE_UNREAD.holds_for(traits):
        yield Finding(
            rules.TABLE_UNREAD,
            "The scheduler of this vLLM takes no K from the table: every step drafts num_speculative_tokens.",
            "Reinstall vLLM from a release, or find out who changed its scheduler.",
        )


def on_release(deployment: Deployment, ks: frozenset[int]) -> Iterator[Finding]:
    """Findings for a table that reaches these Ks, under the largest of `num_speculative_tokens`."""
    yield from on_tables(deployment.release, deployment.traits)
    if deployment.shows(rules.NO_SUCH_FIELD):
        return
    yield from _on_runner(deployment, ks)
    yield from _on_method(deployment, ks)
    yield from _on_parallelism(deployment)
    yield from _on_hybrid(deployment, ks)
    yield from _on_padding(deployment)


def _below_max(deployment: Deployment, ks: frozenset[int]) -> bool:
    return deployment.k_max is None or min(ks) < deployment.k_max


def _on_runner(deployment: Deployment, ks: frozenset[int]) -> Iterator[Finding]:
    release = deployment.release
    if deployment.runner is not Runner.V2:
        return
    if deployment.shows(rules.RUNNER_WITHOUT_TABLES):
        yield Finding(
            rules.RUNNER_WITHOUT_TABLES,
            f"Model runner V2 of vLLM {release} does not support tables and refuses to start with one.",
            "Unset VLLM_USE_V2_MODEL_RUNNER, or upgrade to 0.32 or later.",
        )
        return
    if not _below_max(deployment, ks):
        return
    autoregressive = deployment.method in _AUTOREGRESSIVE
    if deployment.shows(rules.DRAFTER_GRAPHS) and autoregressive and deployment.cudagraph_mode.has_full:
        yield Finding(
            rules.DRAFTER_GRAPHS,
            "Model runner V2 captures the drafter's graphs with K + 1 - num_speculative_tokens tokens a request, which "
            f"is 0 or less for every K below {deployment.k_max or 'the largest'}: the engine fails at start.",
            'Upgrade to 0.32 or later, or set cudagraph_mode to "PIECEWISE".',
        )
    if deployment.shows(rules.RUNNER_DRAFTS_K_MAX):
        yield Finding(
            rules.RUNNER_DRAFTS_K_MAX,
            f"Model runner V2 of vLLM {release} drafts num_speculative_tokens in every step, even at K 0. A smaller K "
            "saves verification only, and without async scheduling nothing.",
            "Upgrade to 0.32 or later, or set VLLM_USE_V2_MODEL_RUNNER=0.",
        )
    if deployment.shows(rules.METHOD_DRAFTS_K_MAX) and deployment.method in _FIXED_LENGTH_V2:
        yield Finding(rules.METHOD_DRAFTS_K_MAX, *_fixed_length(deployment))


def _fixed_length(deployment: Deployment) -> tuple[str, str]:
    skips = Trait.BLOCKS_SKIP_ZERO in deployment.traits and deployment.method in PARALLEL_NATIVE
    reason = (
        f"On model runner V2 the method {deployment.method} {_FIXED_LENGTH_V2[deployment.method]} "
        f"for num_speculative_tokens in every step{', except at K 0' if skips else ''}. A smaller "
        "K saves only verification."
    )
    return reason, "Keep num_speculative_tokens no larger than needed, and compare with a fixed K."


def _on_method(deployment: Deployment, ks: frozenset[int]) -> Iterator[Finding]:
    method, release = deployment.method, deployment.release
    v1 = deployment.runner is Runner.V1
    fixed = "Use a fixed K, or another method."
    if v1 and deployment.shows(rules.METHOD_DROPS) and method in METHODS_WITHOUT_TABLE:
        yield Finding(
            rules.METHOD_DROPS,
            f"For method {method}, vLLM {release} drops the table with a warning and uses num_speculative_tokens.",
            fixed,
        )
    elif v1 and deployment.shows(rules.METHOD_STOPS) and method in _ENGINE_STOPPERS and _below_max(deployment, ks):
        yield Finding(rules.METHOD_STOPS, f"The method {method} {METHODS_WITHOUT_TABLE[method]}.", fixed)
    elif method == "custom_class" and deployment.shows(rules.METHOD_IGNORES):
        yield Finding(rules.METHOD_IGNORES, f"A custom proposer {METHODS_WITHOUT_TABLE[method]}.", fixed)
    if deployment.parallel_drafting and method not in PARALLEL_NATIVE and _below_max(deployment, ks):
        yield Finding(rules.PARALLEL_DRAFTING, f"Parallel drafting {PARALLEL_DRAFTING}.", fixed)
    if method in DRAFTER_FREE_METHODS:
        yield Finding(
            rules.K_IS_A_CAP,
            f"The method {method} proposes what it finds in the text, K tokens at most.",
            "Take tokens per step from output tokens and steps, not from drafts.",
        )
    if method == "mtp" and max(ks) > 1:
        yield Finding(
            rules.MTP_DEPTH,
            "num_speculative_tokens above the model's own MTP depth must be a multiple of it. vLLM does not check the "
            "Ks of a table, and reuses MTP layers for the rest.",
            "Prefer Ks up to that depth, or multiples of it.",
        )
    if method == "dspark" and any(0 < k < (deployment.k_max or 0) for k in ks):
        yield Finding(
            rules.DSPARK_BLOCK,
            "vLLM refuses a num_speculative_tokens below the draft model's block size, but lets smaller Ks of a table "
            "pass. Acceptance at those may differ.",
            "Measure acceptance at each K.",
        )
    if deployment.adaptive_verification and deployment.shows(rules.ADAPTIVE_VERIFICATION):
        yield Finding(
            rules.ADAPTIVE_VERIFICATION,
            "With enable_adaptive_verification, batch size times K is a budget that vLLM spends on the likeliest "
            "drafts, and the drafter always drafts num_speculative_tokens.",
            "Compare three servers: fixed K, table, and adaptive verification alone.",
        )


def _on_parallelism(deployment: Deployment) -> Iterator[Finding]:
    ranks = deployment.data_parallel_size
    mend = (
        f"Use a fixed K that fits the batch size of one rank (all requests divided by {ranks}{_by_total(deployment)}), "
        f"or {ranks} independent servers behind a router, each with the table."
    )
    if ranks > 1 and deployment.shows(rules.DP_DROPS):
        yield Finding(
            rules.DP_DROPS,
            f"With data_parallel_size {ranks}, vLLM drops the table with one warning and uses num_speculative_tokens "
            f"{deployment.k_max or '(of the model)'} at every batch size.",
            mend,
        )
    elif ranks > 1 and deployment.shows(rules.DP_DEADLOCK):
        yield Finding(
            rules.DP_DEADLOCK,
            f"With data_parallel_size {ranks}, ranks look up the table by themselves and hang when their Ks differ.",
            mend,
        )
    if deployment.pipeline_parallel_size > 1:
        stages = deployment.pipeline_parallel_size
        yield Finding(
            rules.PIPELINE_PARALLEL,
            f"With pipeline_parallel_size {stages}, vLLM looks up the batch size of one microbatch, about a {stages}th "
            f"of the running requests, and K follows {stages} steps late.",
            "Use a table that was measured under the same pipeline parallelism.",
        )


def _by_total(deployment: Deployment) -> str:
    """The table's K for all requests of all ranks together; nothing of a table that cannot be read."""
    lookup = read(deployment.raw_table, deployment.k_max or 1, deployment.max_num_seqs)
    if isinstance(lookup, Rejected):
        return ""
    ranks = deployment.data_parallel_size
    return "".join(f"; K {r.k} up to {r.last * ranks}" for r in lookup.canonical().ranges)


def _on_hybrid(deployment: Deployment, ks: frozenset[int]) -> Iterator[Finding]:
    if not deployment.shows(rules.HYBRID_STALE_STATE) or not (0 in ks and max(ks) > 0):
        return
    if deployment.hybrid is False or deployment.mamba_cache_mode in ("all", "align"):
        return
    mend = "Use K 1 in place of 0, upgrade to 0.32 or later, or set --mamba-cache-mode align."
    if deployment.hybrid or _HYBRID.search(deployment.model or ""):
        yield Finding(
            rules.HYBRID_STALE_STATE,
            f"{deployment.model or 'The model'} has recurrent layers. A step with K 0 after a step that accepted "
            "drafts reads a state of the past: the output is silently wrong.",
            mend,
        )
    else:
        yield Finding(
            rules.HYBRID_UNKNOWN,
            "Whether the model has recurrent layers (Mamba, GDN, KDA) is not known here. If so, steps with K 0 read a "
            "state of the past, and the output is silently wrong.",
            mend,
        )


def _on_padding(deployment: Deployment) -> Iterator[Finding]:
    if deployment.kv_transfer and deployment.shows(rules.DECODES_UNPADDED):
        yield Finding(
            rules.DECODES_UNPADDED,
            "Requests that arrive with their KV cache start as one-token decodes. Under a table vLLM does not pad "
            "them, so the step has mixed lengths and no FULL graph.",
            "Measure with such traffic before trusting the table.",
        )
