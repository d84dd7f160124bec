"""From a sweep's manifest to what its vLLM will capture under a table that is yet to be chosen."""

from __future__ import annotations

from dataclasses import replace

from dsd_tune.check.command_line import deployment, from_words
from dsd_tune.check.on_graphs import graph_settings
from dsd_tune.engines.vllm_facts import sweep_table
from dsd_tune.errors import UsageError
from dsd_tune.model.cudagraph import DEFAULT_CEILING, CudagraphMode, Runner
from dsd_tune.model.outlook import Outlook
from dsd_tune.records.release import Release
from dsd_tune.records.run import Manifest
from dsd_tune.records.table import Range, Table

_RAISED_CEILING = 1024
"""vLLM's own largest capture size on compute capability 10.x; a sweep that captured more than 512 tells."""


def outlook(manifest: Manifest) -> Outlook | None:
    """None where the engine ran no CUDA graphs, or follows no rule that is known here."""
    environment, request = manifest.environment, manifest.request
    graphs, runner = environment.graphs_dsd, environment.runner.partition(",")[0]
    if graphs.mode not in set(CudagraphMode) or runner not in set(Runner) or not graphs.capture_sizes:
        return None
    words = ["serve", *request.engine_flags, "--max-num-seqs", str(request.max_num_seqs)]
    settings = {**from_words(words), "speculative-config": request.speculative_config, "model-runner": runner}
    try:
        planned = deployment(settings, Release.parse(environment.vllm_version), cpu=environment.device == "cpu")
    except (UsageError, ValueError):
        # Flags that vLLM took and that are not understood here; nothing is foretold then.
        return None
    ceiling = _RAISED_CEILING if max(graphs.capture_sizes) > DEFAULT_CEILING else DEFAULT_CEILING
    engine = replace(graph_settings(planned, request.k_max, None, ()), mode=CudagraphMode(graphs.mode), ceiling=ceiling)
    # As the engines of a sweep are started: each K needs a batch size of its own.
    seqs = max(request.max_num_seqs, len(request.ks))
    swept = Table(tuple(Range(*entry) for entry in sweep_table(request.ks, seqs))).dense()
    measured = replace(engine, max_num_seqs=seqs, table=swept, stated_ks=request.ks, sizes=graphs.capture_sizes)
    return Outlook(engine, measured, request.batch_sizes)
