from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.check import rules_on_site
from dsd_tune.check.deployment import Deployment
from dsd_tune.check.diagnosis import diagnose
from dsd_tune.check.rules import RULES
from dsd_tune.model.cudagraph import CudagraphMode, Graph, Runner
from dsd_tune.records.finding import Finding, Rule, Severity
from dsd_tune.records.release import Release
from dsd_tune.records.trait import Trait, traits_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "findings.md"

GOOD = [[1, 32, 3], [33, 256, 1]]
TO_ZERO = [[1, 32, 3], [33, 64, 1], [65, 256, 0]]


def planned(table: object = GOOD, minor: int = 33, k_max: object = 3, config: Any = (), **changed: Any) -> Deployment:
    """A server without any finding, with another table, release or K_max, and `changed` fields."""
    named = {"method": "eagle3", "model": "d", "num_speculative_tokens": k_max, **dict(config)}
    if table is not None:
        named["num_speculative_tokens_per_batch_size"] = table
    fields = {"speculative_config": named, "release": Release(0, minor), "asked_max_num_seqs": 256}
    return Deployment(**{**fields, **changed})


def codes(deployment: Deployment) -> list[str]:
    """What is found, worst first."""
    return [finding.rule.code for finding in diagnose(deployment).findings]


@dataclass(frozen=True)
class Example:
    """A deployment to which a rule applies, and the nearest one to which it does not."""

    code: str
    bad: Deployment
    good: Deployment


def method(name: str, **more: Any) -> dict[str, Any]:
    """Part of a speculative config."""
    return {"config": {"method": name, **more}}


EXAMPLES = [
    Example("no-table", planned(None), planned()),
    Example("k-max-invalid", planned(k_max=0), planned(k_max=3.0)),
    Example("k-max-invalid", planned(k_max=None), planned(k_max="3")),
    Example("k-max-from-model", planned(k_max=None, **method("mtp")), planned(**method("mtp"))),
    Example("max-num-seqs-assumed", planned(asked_max_num_seqs=None), planned()),
    Example(
        "draft-slots",
        planned(minor=27, k_max=16, max_num_batched_tokens=2048, **method("dspark")),
        planned(minor=28, k_max=16, max_num_batched_tokens=2048, **method("dspark")),
    ),
    Example("table-shape", planned({"1-256": 3}), planned()),
    Example("table-shape", planned([[1, 256, 0, 768, 3]]), planned()),
    Example("table-empty", planned([]), planned(None)),
    Example("range-not-positive", planned([[0, 256, 3]]), planned()),
    Example("range-reversed", planned([[256, 1, 3]]), planned()),
    Example("k-negative", planned([[1, 32, 3], [33, 256, -1]]), planned()),
    Example("range-overlap", planned([[1, 33, 3], [33, 256, 1]]), planned()),
    Example("table-start", planned([[2, 32, 3], [33, 256, 1]]), planned()),
    Example("k-above-max", planned([[1, 32, 5], [33, 256, 1]]), planned([[1, 32, 5], [33, 256, 1]], k_max=5)),
    Example("table-gap", planned([[1, 30, 3], [33, 256, 1]]), planned()),
    Example("table-tail", planned([[1, 32, 3], [33, 255, 1]]), planned()),
    Example("range-beyond", planned([[1, 32, 3], [33, 257, 1]]), planned()),
    Example("table-unsorted", planned(GOOD[::-1]), planned()),
    Example("always-zero", planned([[1, 256, 0]]), planned()),
    Example("table-constant", planned([[1, 256, 3]]), planned()),
    Example("k-max-unused", planned(k_max=4), planned()),
    Example("zero-first", planned([[1, 4, 0], [5, 256, 1]], k_max=1), planned([[1, 256, 0]])),
    Example("zero-first", planned([[1, 4, 0], [5, 256, 1]], k_max=1), planned([[1, 4, 1], [5, 256, 0]], k_max=1)),
    Example("k-cliff", planned([[1, 32, 3], [33, 256, 0]]), planned(TO_ZERO)),
    Example("k-cliff", planned([[1, 1, 0], [2, 256, 3]]), planned([[1, 1, 0], [2, 256, 1]], k_max=1)),
    Example("release-without-tables", planned(minor=23), planned(minor=24)),
    Example(
        "table-not-looked-up",
        planned(source_traits=traits_of(Release(0, 33)) - {Trait.LOOKUP}),
        planned(source_traits=traits_of(Release(0, 33))),
    ),
    Example("runner-without-tables", planned(minor=24, asked_runner=Runner.V2), planned(minor=24)),
    Example("method-stops-engine", planned(minor=32, **method("suffix")), planned(minor=33, **method("suffix"))),
    Example("method-stops-engine", planned(minor=31, **method("ngram_gpu")), planned(minor=32, **method("ngram_gpu"))),
    Example(
        "method-stops-engine",
        planned(minor=32, **method("medusa")),
        planned([[1, 256, 3]], minor=32, **method("medusa")),
    ),
    Example("method-drops-table", planned(**method("suffix")), planned(minor=32, **method("suffix"))),
    Example("method-ignores-table", planned(minor=32, **method("custom_class")), planned(**method("custom_class"))),
    Example("parallel-drafting", planned(config={"parallel_drafting": True}), planned()),
    Example(
        "parallel-drafting",
        planned(**method("draft_model", parallel_drafting=True)),
        planned(**method("dflash", parallel_drafting=True)),
    ),
    Example("drafter-graphs", planned(minor=31), planned(minor=32)),
    Example("drafter-graphs", planned(minor=31), planned([[1, 256, 3]], minor=31)),
    Example("drafter-graphs", planned(minor=31), planned(minor=31, **method("dflash"))),
    Example("drafter-graphs", planned(minor=25), planned(minor=25, cudagraph_mode=CudagraphMode.PIECEWISE)),
    Example(
        "hybrid-stale-state",
        planned(TO_ZERO, minor=31, model="Qwen/Qwen3-Next-80B-A3B-Instruct"),
        planned(TO_ZERO, minor=32, model="Qwen/Qwen3-Next-80B-A3B-Instruct"),
    ),
    Example(
        "hybrid-unknown",
        planned(TO_ZERO, minor=31),
        planned(TO_ZERO, minor=31, mamba_cache_mode="align"),
    ),
    Example("hybrid-stale-state", planned(TO_ZERO, minor=31, hybrid=True), planned(TO_ZERO, minor=31, hybrid=False)),
    Example(
        "hybrid-stale-state",
        planned(TO_ZERO, minor=31, hybrid=True),
        planned(TO_ZERO, minor=31, hybrid=True, source_traits=traits_of(Release(0, 31)) | {Trait.HYBRID_STATE}),
    ),
    Example("data-parallel-deadlock", planned(minor=25, data_parallel_size=2), planned(minor=26, data_parallel_size=2)),
    Example("data-parallel-drops-table", planned(data_parallel_size=2), planned(tensor_parallel_size=2)),
    Example("pipeline-parallel", planned(pipeline_parallel_size=2), planned()),
    Example("runner-drafts-k-max", planned(minor=31), planned(minor=31, asked_runner=Runner.V1)),
    Example("method-drafts-k-max", planned(**method("draft_model")), planned()),
    Example("adaptive-verification", planned(config={"enable_adaptive_verification": True}), planned()),
    Example("k-is-a-cap", planned(**method("ngram")), planned()),
    Example("mtp-depth", planned(**method("qwen3_next_mtp")), planned([[1, 256, 1]], k_max=1, **method("mtp"))),
    Example("dspark-block", planned(**method("dspark")), planned([[1, 32, 3], [33, 256, 0]], **method("dspark"))),
    Example("decodes-unpadded", planned(kv_transfer=True), planned()),
    Example("no-graphs", planned(cudagraph_mode=CudagraphMode.NONE), planned(cpu=True)),
    Example("runner-piecewise", planned(asked_runner=Runner.V1), planned(cpu=True)),
    Example("graph-miss", planned([[1, 32, 2], [33, 256, 1]], k_max=2), planned()),
    Example("capture-ceiling-alone", planned(max_capture_size=512), planned(max_capture_size=512, minor=28)),
    Example(
        "capture-conflict",
        planned(max_capture_size=512, capture_sizes=(1, 256)),
        planned(max_capture_size=256, capture_sizes=(1, 256)),
    ),
    Example("lora-graphs", planned(lora=True), planned(lora=True, asked_runner=Runner.V1)),
]


def test_a_good_table_has_no_findings() -> None:
    """What the examples start from is free of findings, so each of them shows its own rule."""
    assert codes(planned()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.code + str(EXAMPLES.index(example)))
def test_finds_what_is_wrong_and_nothing_else(example: Example) -> None:
    """Each rule applies to its example, and not to the nearest deployment without the fault."""
    assert example.code in codes(example.bad)
    assert example.code not in codes(example.good)


def test_every_rule_has_an_example() -> None:
    """The list is closed: no rule is dead, and no finding comes from outside it."""
    assert {example.code for example in EXAMPLES} == {rule.code for rule in RULES}
    assert len({rule.code for rule in RULES}) == len(RULES)


def test_document_lists_every_rule_as_it_is() -> None:
    """docs/findings.md has each rule once, with its severity, releases, summary and reference, in the same order."""
    rows = re.findall(
        r"^\| `([a-z0-9-]+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| [^|]+ \| ([^|]*)\|$", DOCUMENT.read_text(), re.MULTILINE
    )
    assert [(code, severity, versions, summary, see.strip()) for code, severity, versions, summary, see in rows] == [
        (rule.code, rule.severity, rule.versions, rule.summary, rule.reference) for rule in RULES + rules_on_site.RULES
    ]


def test_rules_apply_only_to_their_releases() -> None:
    """No release gets a finding whose rule does not hold for it."""
    for example in EXAMPLES:
        for minor in range(22, 34):
            deployment = replace(example.bad, release=Release(0, minor))
            for finding in diagnose(deployment).findings:
                assert deployment.shows(finding.rule), (finding.rule.code, minor)


def test_errors_come_first() -> None:
    """Findings are ordered by severity."""
    found = diagnose(planned([[1, 30, 5], [33, 300, 0]], minor=31)).findings
    ranks = [list(Severity).index(finding.rule.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 3


def test_a_dropped_table_is_shown_as_the_fixed_k_it_becomes() -> None:
    """Where vLLM sets the table aside, lookup and graphs are those of the fixed K."""
    found = diagnose(planned(data_parallel_size=2))
    assert [(span.first, span.last, span.k) for span in found.spans] == [(1, 256, 3)]
    assert found.dispatcher is not None
    assert found.dispatcher.settings.table is None


def test_nothing_is_promised_past_a_refusal() -> None:
    """A table that vLLM refuses has no lookup and no graphs."""
    found = diagnose(planned([[1, 33, 3], [33, 256, 1]]))
    assert found.has_errors
    assert (found.spans, found.dispatcher) == ((), None)


def test_unsaid_k_max_is_read_from_the_table() -> None:
    """Where the draft model gives K_max, the lookup is unclamped and K_max is not called too large."""
    found = diagnose(planned([[1, 32, 5], [33, 256, 1], [257, 300, 9]], k_max=None, **method("mtp")))
    assert [(span.k, span.stated_k) for span in found.spans] == [(5, 5), (1, 1)]
    assert "k-max-unused" not in [finding.rule.code for finding in found.findings]


def test_cpu_build_has_no_graphs() -> None:
    """The CPU build runs model runner V1 without CUDA graphs, and that is no fault of the table."""
    found = diagnose(planned(cpu=True))
    assert found.findings == ()
    assert found.dispatcher is not None
    assert set(found.dispatcher.by_batch_size()) == {Graph.NONE}


def test_adaptive_verification_leaves_graphs_open() -> None:
    """Adaptive verification captures other graphs, so none are claimed."""
    assert diagnose(planned(config={"enable_adaptive_verification": True})).dispatcher is None


@pytest.mark.parametrize(
    ("minor", "name", "more", "runner"),
    [
        (24, "eagle3", {}, Runner.V1),
        (25, "eagle3", {}, Runner.V2),
        (29, "draft_model", {}, Runner.V1),
        (30, "draft_model", {}, Runner.V1),
        (31, "draft_model", {}, Runner.V2),
        (31, "ngram", {}, Runner.V1),
        (32, "ngram", {}, Runner.V2),
        (33, "suffix", {}, Runner.V1),
        (33, "eagle3", {"parallel_drafting": True}, Runner.V1),
        (33, "dflash", {"parallel_drafting": True}, Runner.V2),
        (33, "draft_model", {"use_heterogeneous_vocab": True}, Runner.V1),
    ],
)
def test_runner_is_the_one_that_vllm_chooses(minor: int, name: str, more: dict[str, Any], runner: Runner) -> None:
    """Without a choice of the user, the model runner follows from release and method."""
    assert planned(minor=minor, **method(name, **more)).runner is runner


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"method": "deepseek_mtp"}, "mtp"),
        ({"method": "[ngram]"}, "ngram"),
        ({"method": None, "model": "ngram"}, "ngram"),
        ({"method": None, "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}, "eagle3"),
        ({"method": None, "model": "yuhuili/EAGLE-LLaMA3-Instruct-8B"}, "eagle"),
        ({"method": None, "model": "small"}, "draft_model"),
    ],
    ids=str,
)
def test_method_is_the_one_that_vllm_infers(config: dict[str, Any], name: str) -> None:
    """Old names and names of draft models lead to the same method as in vLLM."""
    assert planned(config=config).method == name


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.32.0", (0, 32)), ("0.33", (0, 33)), ("v0.24.1", (0, 24)), ("0.32.0+cpu", (0, 32)), ("1.0.0rc1.dev3", (1, 0))],
)
def test_release_is_read_from_any_version(version: str, release: tuple[int, int]) -> None:
    """Patch, pre-release and local parts do not matter."""
    assert Release.parse(version) == Release(*release)


def test_no_version_is_no_release() -> None:
    """A word that is no version is refused."""
    with pytest.raises(ValueError, match="no version"):
        Release.parse("latest")


def test_nonsense_rules_and_findings_cannot_be_made() -> None:
    """A rule needs a code; a finding needs a reason and a mend."""
    with pytest.raises(ValueError, match="lower-case"):
        Rule("No Code", Severity.NOTE, "x")
    with pytest.raises(ValueError, match="needs a reason"):
        Finding(RULES[0], "", "mend")


def test_releases_of_a_rule_are_named_in_words() -> None:
    """A span of releases reads as people say it."""
    said = [
        Rule("a", Severity.NOTE, "x", *span).versions
        for span in ((None, None), (Trait.TABLES, None), (None, Trait.TABLES), (Trait.TABLES, Trait.TABLES_ON_V2))
    ]
    assert said == ["all", "0.24 and later", "up to 0.23", "0.24"]
    assert Rule("a", Severity.NOTE, "x", Trait.TABLES_ON_V2, Trait.V2_FOLLOWS_K).versions == "0.25 to 0.31"


def test_impossible_deployments_are_refused() -> None:
    """No server runs zero requests or ranks."""
    with pytest.raises(ValueError, match="1 or more"):
        planned(data_parallel_size=0)
