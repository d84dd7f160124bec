"""A diagnosis for people and for scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import fill

from dsd_tune.check.diagnosis import Diagnosis
from dsd_tune.check.on_graphs import graph_stretches
from dsd_tune.check.reading import Span
from dsd_tune.model.cudagraph import Dispatcher, Graph, exact_sizes
from dsd_tune.records.finding import Finding

_WIDTH = 80


def as_text(diagnosis: Diagnosis) -> str:
    """What was assumed, the findings with the worst first, the lookup, and a count as the last line."""
    planned = diagnosis.deployment
    choice = "" if planned.asked_runner else " (vLLM's choice)"
    lines = [f"vLLM {planned.release}, model runner {planned.runner}{choice}, max_num_seqs {planned.max_num_seqs}", ""]
    lines += findings_lines(diagnosis.findings)
    lines += lookup_lines(diagnosis)
    lines.append(count_line(diagnosis.findings))
    return "\n".join(lines)


def findings_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Each with its reason and mend, and an empty line after it."""
    for finding in findings:
        yield from _finding_lines(finding)
        yield ""


def count_line(findings: Sequence[Finding]) -> str:
    """How many of each severity."""
    counts = Counter(finding.rule.severity.value for finding in findings)
    return ", ".join(f"{n} {word}{'s' * (n > 1)}" for word, n in counts.items()) or "nothing found"


def _finding_lines(finding: Finding) -> Iterator[str]:
    rule = finding.rule
    reference = f" ({rule.reference})" if rule.reference else ""
    yield f"{rule.severity}: {rule.code}{reference}"
    for part in (finding.reason, f"-> {finding.mend}"):
        # A table or a JSON value must stay whole to be pasted.
        yield fill(
            part, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def lookup_lines(diagnosis: Diagnosis) -> Iterator[str]:
    """K and graphs by batch size, and an empty line; nothing where vLLM would not get so far."""
    if not diagnosis.spans:
        return
    rows = [("batch sizes", "K", "CUDA graphs", "")]
    graphs = diagnosis.dispatcher.by_batch_size() if diagnosis.dispatcher is not None else ()
    for span in diagnosis.spans:
        sizes = str(span.first) if span.first == span.last else f"{span.first}-{span.last}"
        rows.append((sizes, str(span.k), _graphs(graphs[span.first - 1 : span.last]), _remark(span)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield "What vLLM looks up"
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield ""


def _remark(span: Span) -> str:
    return f"{span.origin}, clamped from {span.stated_k}" if span.is_clamped else str(span.origin)


def _graphs(graphs: Sequence[Graph]) -> str:
    """As `FULL` or `FULL 12, PIECEWISE 4`; of no graphs nothing is known."""
    if not graphs:
        return "not known"
    counts = Counter(graphs)
    words = {graph: "eager" if graph is Graph.NONE else graph.value for graph in Graph}
    if len(counts) == 1:
        return words[next(iter(counts))]
    return ", ".join(f"{words[graph]} {counts[graph]}" for graph in Graph if graph in counts)


def as_json(diagnosis: Diagnosis) -> str:
    """Everything, one object; `graphs` is null where they are not known."""
    return json.dumps({**as_object(diagnosis), "findings": finding_objects(diagnosis.findings)}, indent=2)


def as_object(diagnosis: Diagnosis) -> dict[str, object]:
    """What was assumed, the lookup and the graphs."""
    planned = diagnosis.deployment
    return {
        "vllm": str(planned.release),
        "model_runner": planned.runner,
        "method": planned.method,
        "max_num_seqs": planned.max_num_seqs,
        "num_speculative_tokens": planned.k_max,
        "lookup": [
            {"first": s.first, "last": s.last, "k": s.k, "stated_k": s.stated_k, "origin": s.origin.name.lower()}
            for s in diagnosis.spans
        ],
        "graphs": _graphs_object(diagnosis.dispatcher),
    }


def finding_objects(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """As JSON shows them."""
    return [_finding_object(finding) for finding in findings]


def _finding_object(finding: Finding) -> dict[str, str]:
    rule = finding.rule
    return {
        "code": rule.code,
        "severity": rule.severity,
        "reason": finding.reason,
        "mend": finding.mend,
        "versions": rule.versions,
        "reference": rule.reference,
    }


def _graphs_object(dispatcher: Dispatcher | None) -> dict[str, object] | None:
    if dispatcher is None:
        return None
    return {
        "mode": dispatcher.settings.effective_mode,
        "capture_sizes": dispatcher.sizes,
        "exact_sizes": exact_sizes(dispatcher.settings),
        "full_graphs": len(dispatcher.full),
        "piecewise_graphs": len(dispatcher.piecewise),
        "batch_sizes": [
            {"first": first, "last": last, "graph": graph} for graph, first, last in graph_stretches(dispatcher)
        ],
    }
