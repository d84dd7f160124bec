"""The whole answer: findings, the lookup vLLM will really use, and the CUDA graphs it will run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dsd_tune.check import rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.on_graphs import graph_settings, on_graphs
from dsd_tune.check.on_release import drops_table, on_release
from dsd_tune.check.on_table import on_lookup, on_rejection
from dsd_tune.check.reading import Lookup, Origin, Rejected, Span, lax_int, read
from dsd_tune.model.cudagraph import Dispatcher
from dsd_tune.records.drafter import PARALLEL_NATIVE
from dsd_tune.records.finding import Finding, Severity

_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings with the worst first. No spans: vLLM would not get so far. No dispatcher: the graphs are not known."""

    deployment: Deployment
    findings: tuple[Finding, ...]
    spans: tuple[Span, ...] = ()
    dispatcher: Dispatcher | None = None

    @property
    def has_errors(self) -> bool:
        """Whether anything must change before this is deployed."""
        return any(finding.rule.severity is Severity.ERROR for finding in self.findings)


def diagnose(deployment: Deployment) -> Diagnosis:
    """Everything that can be said without the machine, the model or vLLM."""
    reading = _reading(deployment)
    findings = list(_on_config(deployment))
    if isinstance(reading, Rejected):
        findings.append(on_rejection(reading, deployment.raw_table, deployment.max_num_seqs))
    lookup = reading if isinstance(reading, Lookup) else None
    if lookup is not None:
        findings += on_lookup(lookup)
    if deployment.has_table:
        findings += on_release(deployment, _ks(deployment, lookup))
    spans = _spans(deployment, lookup)
    dispatcher = _dispatcher(deployment, lookup) if spans else None
    if dispatcher is not None and lookup is not None and not drops_table(deployment):
        findings += on_graphs(deployment, dispatcher)
    return Diagnosis(deployment, worst_first(findings), spans, dispatcher)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Ordered by severity, and otherwise as found."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.rule.severity)))


def _reading(deployment: Deployment) -> Lookup | Rejected | None:
    """The table as vLLM reads it; None if there is none, or no K_max to read it with."""
    if not deployment.has_table:
        return None
    k_max = deployment.k_max
    if k_max is None:
        # Whatever K_max is, a malformed table stays malformed; an accepted one cannot be clamped yet.
        reading = read(deployment.raw_table, 1, deployment.max_num_seqs)
        if isinstance(reading, Rejected) or not deployment.k_max_from_model:
            return reading if isinstance(reading, Rejected) else None
        # Long enough that nothing is clamped.
        unclamped = read(deployment.raw_table, 2**31, deployment.max_num_seqs)
        k_max = max(1, *unclamped.dense()) if isinstance(unclamped, Lookup) else 1
    return read(deployment.raw_table, k_max, deployment.max_num_seqs)


def _ks(deployment: Deployment, lookup: Lookup | None) -> frozenset[int]:
    """The Ks that are reached; of a table that cannot be read, every K up to the largest."""
    if lookup is not None:
        return frozenset(lookup.dense())
    return frozenset({0, deployment.k_max or 1})


def _spans(deployment: Deployment, lookup: Lookup | None) -> tuple[Span, ...]:
    if deployment.shows(rules.NO_SUCH_FIELD) and deployment.has_table:
        return ()
    k_max = deployment.k_max
    if deployment.has_table and not (lookup is not None and drops_table(deployment)):
        return lookup.spans() if lookup is not None else ()
    if k_max is None:
        return ()
    origin = Origin.DROPPED if deployment.has_table else Origin.FIXED
    return (Span(1, deployment.max_num_seqs, k_max, k_max, origin),)


def _dispatcher(deployment: Deployment, lookup: Lookup | None) -> Dispatcher | None:
    if deployment.adaptive_verification:
        return None
    if lookup is None or drops_table(deployment):
        return Dispatcher(graph_settings(deployment, deployment.k_max or 1, None, ()))
    stated = tuple(k for *_, k in lookup.entries)
    return Dispatcher(graph_settings(deployment, lookup.k_max, lookup.dense(), stated))


def _on_config(deployment: Deployment) -> Iterator[Finding]:
    written = deployment.speculative_config.get("num_speculative_tokens")
    if deployment.k_max_from_model:
        yield Finding(
            rules.K_MAX_FROM_MODEL,
            f"Without num_speculative_tokens, vLLM takes it from the draft model of method {deployment.method}. What "
            "follows assumes that the table needs no clamping.",
            "Set num_speculative_tokens to the largest K of the table.",
        )
    elif deployment.k_max is None:
        shown = "missing" if written is None else f"{written!r}"
        above = "vLLM asks for a whole number above 0" if lax_int(written) is None else "vLLM refuses 0 and less"
        yield Finding(
            rules.K_MAX_INVALID,
            f"num_speculative_tokens is {shown}; {above}.",
            "Set it to the largest K of the table. For no speculation at all, remove --speculative-config.",
        )
    if not deployment.has_table:
        yield Finding(
            rules.NO_TABLE,
            "There is no num_speculative_tokens_per_batch_size, so K is num_speculative_tokens at every batch size.",
            "Nothing to do, unless a table was meant.",
        )
    if deployment.asked_max_num_seqs is None:
        yield Finding(
            rules.MAX_NUM_SEQS_ASSUMED,
            f"max_num_seqs is taken as {deployment.max_num_seqs}, vLLM's default on GPUs below 70 GiB. Larger ones get "
            "1024.",
            "Give --max-num-seqs, here and to vLLM.",
        )
    yield from _on_draft_slots(deployment)


def _on_draft_slots(deployment: Deployment) -> Iterator[Finding]:
    budget, k_max = deployment.max_num_batched_tokens, deployment.k_max
    if budget is None or k_max is None or not deployment.shows(rules.DRAFT_SLOTS):
        return
    slots = _slots(deployment, k_max) * deployment.max_num_seqs
    if budget <= slots:
        yield Finding(
            rules.DRAFT_SLOTS,
            f"Drafting {k_max} tokens takes {slots} slots from max_num_batched_tokens {budget}, which leaves none.",
            "Raise --max-num-batched-tokens, or lower num_speculative_tokens or --max-num-seqs.",
        )


def _slots(deployment: Deployment, k_max: int) -> int:
    """Tokens that a drafter adds to a request in a step."""
    draft_model = deployment.method == "draft_model"
    if deployment.method == "dflash" or (draft_model and deployment.parallel_drafting):
        return k_max
    if deployment.parallel_drafting or deployment.method in PARALLEL_NATIVE:
        return k_max - 1
    return 1 if draft_model else 0
