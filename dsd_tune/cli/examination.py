"""An examination for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from dsd_tune.check.examination import Examination
from dsd_tune.cli.diagnosis import as_object, count_line, finding_objects, findings_lines, lookup_lines
from dsd_tune.records.configured import Configured
from dsd_tune.records.host import Gpu, Host
from dsd_tune.records.running import RunningServer
from dsd_tune.records.source import VllmSource
from dsd_tune.records.trait import Trait

_GIB = 2**30


def as_text(seen: Examination) -> str:
    """What was looked at, the findings with the worst first, the lookup, and a count as the last line."""
    lines = [
        *(_source_lines(seen.source) if seen.source else ()),
        *(_host_lines(seen.host) if seen.host else ()),
        *(_server_lines(seen.server) if seen.server else ()),
        *(_configured_lines(seen.configured) if seen.configured else ()),
        *findings_lines(seen.findings),
        *(lookup_lines(seen.diagnosis) if seen.diagnosis else ()),
        count_line(seen.findings),
    ]
    return "\n".join(lines)


def _source_lines(source: VllmSource) -> Iterator[str]:
    build = ", CPU build" if source.cpu else ""
    yield f"vLLM {source.version or 'without a version'}{build}, in {source.folder}"
    for trait in Trait:
        looked = trait in source.seen | source.missed
        yield f"  {'yes' if trait in source.traits else 'no':<5}{trait.meaning}{'' if looked else ' (not looked at)'}"
    yield ""


def _host_lines(host: Host) -> Iterator[str]:
    memory = f"{host.free_bytes / _GIB:.1f} of {host.memory_bytes / _GIB:.1f} GiB free"
    yield f"{host.processor}, {host.cores} cores, {memory}"
    for index, gpu in enumerate(host.gpus):
        yield f"GPU {index}: {_gpu(gpu)}"
    yield ""


def _gpu(gpu: Gpu) -> str:
    facts = (
        (gpu.clock_mhz, "{:.0f} MHz"),
        (gpu.top_clock_mhz, "up to {:.0f} MHz"),
        (gpu.power_limit_w, "limited to {:.0f} W"),
        (gpu.free_mib, "{:.0f} MiB free"),
    )
    return ", ".join([gpu.name, *(text.format(value) for value, text in facts if value is not None)])


def _server_lines(server: RunningServer) -> Iterator[str]:
    models = f", serving {', '.join(server.models)}" if server.models else ""
    yield f"vLLM {server.version} at {server.url}{models}"
    yield f"  {server.running} requests running, {server.waiting} waiting"
    if server.k_max is not None:
        mean = "" if server.mean_k is None else f", {server.mean_k:.2f} tokens each"
        yield f"  num_speculative_tokens {server.k_max}; {server.drafts} drafts so far{mean}"
    yield ""


def _configured_lines(configured: Configured) -> Iterator[str]:
    yield f"vLLM would run model runner {configured.runner} on {configured.device}, drafting by {configured.method}"
    yield f"  max_num_seqs {configured.max_num_seqs}, max_model_len {configured.max_model_len}"
    sizes = f", {len(configured.capture_sizes)} sizes to {max(configured.capture_sizes, default=0)} tokens"
    yield f"  CUDA graphs {configured.cudagraph_mode}{sizes if configured.capture_sizes else ''}"
    if configured.unread:
        yield f"  not looked at: {' '.join(configured.unread)}"
    yield ""


def as_json(seen: Examination) -> str:
    """Everything, one object; null for what was not looked at."""
    content = {
        "vllm": _source_object(seen.source) if seen.source else None,
        "host": asdict(seen.host) if seen.host else None,
        "server": asdict(seen.server) if seen.server else None,
        "configured": asdict(seen.configured) if seen.configured else None,
        "planned": as_object(seen.diagnosis) if seen.diagnosis else None,
        "findings": finding_objects(seen.findings),
    }
    return json.dumps(content, indent=2)


def _source_object(source: VllmSource) -> dict[str, object]:
    return {
        "folder": source.folder,
        "version": source.version,
        "release": str(source.release),
        "cpu": source.cpu,
        "traits": {trait.code: trait in source.traits for trait in Trait},
    }
