from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dsd_tune.check.deployment import Deployment
from dsd_tune.check.diagnosis import diagnose
from dsd_tune.check.examination import Examination
from dsd_tune.check.on_configured import as_configured, on_refusal
from dsd_tune.check.rules_on_site import RULES
from dsd_tune.engines.host import read_gpus, this_host
from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.model.cudagraph import Runner
from dsd_tune.records.configured import Configured
from dsd_tune.records.finding import Severity
from dsd_tune.records.host import Gpu, Host
from dsd_tune.records.release import Release
from dsd_tune.records.running import RunningServer
from dsd_tune.records.source import VllmSource
from dsd_tune.records.trait import Trait, traits_of

TABLE = [[1, 32, 3], [33, 256, 1]]
GIB = 2**30

PLANNED = Deployment(
    speculative_config={
        "method": "eagle3",
        "model": "d",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": TABLE,
    },
    release=Release(0, 33),
    model="m",
)
CONFIGURED = Configured(
    method="eagle3",
    k_max=3,
    kept_table=True,
    parallel_drafting=False,
    runner="v2",
    device="cuda",
    cudagraph_mode="FULL_AND_PIECEWISE",
    capture_sizes=(1, 2, 4),
    enforce_eager=False,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    max_model_len=4096,
    drafter_max_len=4096,
    hybrid=False,
    async_scheduling=True,
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    data_parallel_size=1,
    lora=False,
    claimed_share=0.9,
)
GPU = Gpu("H100", "595.1", 1980, 1980, 700, 700, 80_000, 79_000)
HOST = Host("Xeon", "x86_64", 8, 64 * GIB, 60 * GIB, ("libtcmalloc_minimal.so.4", "libiomp5.so"), (GPU,))
SOURCE = VllmSource("vllm", "0.33.0", cpu=False, seen=traits_of(Release(0, 33)), missed=frozenset())
SERVER = RunningServer("http://h:8000", "0.33.0", ("m",), 4096, 3, 0, k_max=3, drafts=500, draft_tokens=1000)


def seen(configured: dict[str, Any] | None = None, **changed: Any) -> Examination:
    """An examination without findings, with another `configured` and `changed` parts."""
    settled = replace(CONFIGURED, **(configured or {}))
    parts = {"source": SOURCE, "host": HOST, "configured": settled}
    return Examination(**{**parts, "diagnosis": diagnose(as_configured(PLANNED, settled)), **changed})


def served(**changed: Any) -> Examination:
    """A server that runs what is planned, with `changed` facts."""
    planned = replace(PLANNED, asked_max_num_seqs=256)
    return Examination(server=replace(SERVER, **changed), diagnosis=diagnose(planned))


def with_gpu(**changed: Any) -> Examination:
    """An examination with one changed GPU."""
    return seen(host=replace(HOST, gpus=(replace(GPU, **changed),)))


def on_cpu(**changed: Any) -> Examination:
    """An examination of a machine where vLLM computes on the CPU."""
    return seen(configured={"device": "cpu", "runner": "v1"}, host=replace(HOST, **changed))


@dataclass(frozen=True)
class Example:
    """An examination to which a rule applies, the nearest one to which it does not, and words of its reason."""

    code: str
    bad: Examination
    good: Examination
    words: str


EXAMPLES = [
    Example(
        "vllm-unlike-release",
        seen(source=replace(SOURCE, seen=SOURCE.seen - {Trait.LOOKUP}, missed=frozenset({Trait.LOOKUP}))),
        seen(),
        "less: lookup",
    ),
    Example("config-refused", seen(refusal=on_refusal(EnvironmentUnfit("No.", "Go."))), seen(), "No."),
    Example("table-dropped", seen({"kept_table": False}), seen(), "K is 3 at every batch size"),
    Example(
        "table-dropped", seen({"kept_table": False}), seen({"kept_table": False, "data_parallel_size": 2}), "holds no"
    ),
    Example("drafter-context", seen({"drafter_max_len": 2048}), seen({"drafter_max_len": None}), "2048 tokens"),
    Example("memory-taken", with_gpu(free_mib=71_000), with_gpu(free_mib=73_000), "90% of the memory of GPU 0 (H100)"),
    Example("memory-taken", with_gpu(free_mib=0), with_gpu(free_mib=None), "only 0.0 GiB are free"),
    Example("memory-taken", on_cpu(free_bytes=57 * GIB), on_cpu(free_bytes=58 * GIB), "57.6 GiB"),
    Example("memory-taken", on_cpu(free_bytes=0), seen({"device": "cpu", "claimed_share": None}), "this machine"),
    Example("gpu-slowed", with_gpu(slowed_by=("software power cap",)), with_gpu(), "software power cap"),
    Example("gpu-power-capped", with_gpu(power_limit_w=400), with_gpu(power_limit_w=None), "400 W"),
    Example("cpu-preload", on_cpu(preloaded=("libiomp5.so",)), on_cpu(), "libtcmalloc not in"),
    Example("cpu-preload", on_cpu(preloaded=()), with_gpu(), "libtcmalloc and libiomp"),
    Example("server-without-drafter", served(k_max=None), served(), "without --speculative-config"),
    Example("server-other-k-max", served(k_max=5), served(), "num_speculative_tokens 5"),
    Example("server-untried", served(drafts=99), served(drafts=100), "99 drafts"),
    Example("server-untried", served(drafts=0, draft_tokens=0), served(), "0 drafts"),
    Example("server-always-k-max", served(draft_tokens=1490), served(draft_tokens=1400), "2.98 tokens"),
    Example("server-shorter-drafts", served(), served(draft_tokens=1500), "2.00 tokens"),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.code}-{EXAMPLES.index(example)}")
def test_finds_what_is_wrong_and_nothing_else(example: Example) -> None:
    """Each rule applies to its example, says what is so, and spares the nearest examination without the fault."""
    reasons = [finding.reason for finding in example.bad.findings if finding.rule.code == example.code]
    assert [example.words in reason for reason in reasons] == [True]
    assert example.code not in [finding.rule.code for finding in example.good.findings]


def test_every_rule_has_an_example() -> None:
    """The list is closed: no rule is dead, and no finding comes from outside it."""
    assert {example.code for example in EXAMPLES} == {rule.code for rule in RULES}


def test_a_fit_environment_has_no_findings() -> None:
    """What the examples start from is free of findings; only an error makes it unfit."""
    assert (seen().findings, seen().is_fit) == ((), True)
    assert with_gpu(slowed_by=("hardware slowdown",)).is_fit
    assert not with_gpu(free_mib=0).is_fit


def test_errors_come_first_wherever_they_are_found() -> None:
    """Findings of the table, the vLLM and the machine are ordered together."""
    examined = with_gpu(free_mib=0, slowed_by=("hardware slowdown",), power_limit_w=400)
    ranks = [finding.rule.severity for finding in examined.findings]
    assert ranks == [Severity.ERROR, Severity.WARNING, Severity.NOTE]


@pytest.mark.parametrize(
    ("traits", "code"),
    [(frozenset(), "release-without-tables"), (traits_of(Release(0, 33)) - {Trait.LOOKUP}, "table-not-looked-up")],
)
def test_a_vllm_without_tables_is_unfit_for_every_plan(traits: frozenset[Trait], code: str) -> None:
    """Without a plan too, a vLLM that cannot follow any table is an error."""
    missed = frozenset(Trait) - traits
    source = VllmSource("vllm", "0.23.0" if not traits else "0.33.0", cpu=False, seen=traits, missed=missed)
    examined = Examination(source=source, host=HOST)
    assert code in [finding.rule.code for finding in examined.findings]
    assert not examined.is_fit


def test_vllms_own_settings_replace_assumptions() -> None:
    """What vLLM chose is what the table is checked against; what the user wrote about graphs stays."""
    chosen = replace(CONFIGURED, runner="v1", device="cpu", max_num_seqs=64, k_max=2, hybrid=True, enforce_eager=True)
    planned = as_configured(PLANNED, chosen)
    assert (planned.runner, planned.cpu, planned.max_num_seqs, planned.k_max) == (Runner.V1, True, 64, 2)
    assert (planned.hybrid, planned.cudagraph_mode.has_full) == (True, False)
    assert planned.raw_table == TABLE


def test_gpus_are_read_as_their_driver_prints_them() -> None:
    """One line a GPU; what it does not tell is None, and only reasons that slow a busy GPU are named."""
    answer = (
        "NVIDIA H200, 595.71.05, 345, 1980, 700.00, 700.00, 143771, 143210, 0x0000000000000001\n"
        "NVIDIA GB10, 580.1, [N/A], 3003, [N/A], [N/A], [N/A], [N/A], 0x0000000000000044\n"
        "No devices were found\n"
    )
    first, second = read_gpus(answer)
    assert first == Gpu("NVIDIA H200", "595.71.05", 345, 1980, 700, 700, 143771, 143210, ())
    assert (second.clock_mhz, second.memory_mib) == (None, None)
    assert second.slowed_by == ("software power cap", "hardware thermal slowdown")


def test_an_older_driver_is_asked_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver's tool refuses the new name of a field it is asked by the old one, for the visible GPUs only."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$*" in *clocks_event*) exit 2;; *--id=1) ;; *) exit 3;; esac\n'
        "echo 'A100, 450.1, 210, 1410, 250.00, 400.00, 40960, 40000, 0x0000000000000004'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    (gpu,) = this_host().gpus
    assert (gpu.name, gpu.power_limit_w, gpu.slowed_by) == ("A100", 250, ("software power cap",))


def test_this_machine_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor, cores and memory are known everywhere, and preloaded libraries by their names."""
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libtcmalloc_minimal.so.4:/opt/libiomp5.so")
    host = this_host()
    assert host.preloaded == ("libtcmalloc_minimal.so.4", "libiomp5.so")
    assert host.processor
    assert 0 < host.free_bytes <= host.memory_bytes
    assert host.cores > 0
