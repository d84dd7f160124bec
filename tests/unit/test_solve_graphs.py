import math
from dataclasses import replace

import numpy as np
from builders import a_surface

from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.engines.vllm_facts import sweep_table
from dsd_tune.model.cudagraph import GraphSettings, Runner
from dsd_tune.model.outlook import Outlook
from dsd_tune.model.sampled import DRAWS, Sampled
from dsd_tune.records.profile import Verdict
from dsd_tune.records.release import Release
from dsd_tune.solve import decide

SIZES = (1, 2, 4, 8, 16, 32)
LARGEST = 32
KS = (0, 1, 2, 3, 4)


def _graphs(**chosen: tuple[int, ...]) -> Outlook:
    """vLLM 0.32 on model runner V2, measured by a sweep of KS, with capture sizes that the user has `chosen`."""
    engine = GraphSettings(release=Release(0, 32), runner=Runner.V2, max_num_seqs=LARGEST, k_max=KS[-1], **chosen)
    swept = tuple(k for first, last, k in sweep_table(KS, LARGEST) for _ in range(first, last + 1))
    return Outlook(engine, replace(engine, table=swept, stated_ks=KS, sizes=None), SIZES)


def test_graphs_break_ties() -> None:
    """Of tables that are tied the one that keeps its CUDA graphs is taken."""
    law = CostLaw(critical_tokens=16, slope_s=0.001, capture_sizes=(1, 2, 4, 8, 16, 24, 32, 64, 128))
    surface = a_surface(SimulatedEngine(law, (0.8, 0.7, 0.65, 0.6)), batch_sizes=SIZES, ks=KS)
    alone, kept = (decide(surface, LARGEST, None, graphs).table for graphs in (None, _graphs()))
    assert alone
    assert kept
    assert (alone.ks, kept.ks) == ({4, 3, 1, 0}, {3, 1, 0})
    assert _graphs().misses(alone)
    assert not _graphs().misses(kept)


def _two_ks() -> Sampled:
    """Log TPOT of K=0, 1 and 4 where 4 halves it up to batch size 4, 1 from there on, and nothing else pays."""
    point = np.full((len(SIZES), 3), math.log(0.02))
    point[:3, 2] = point[3:, 1] = math.log(0.01)
    return Sampled(point, np.broadcast_to(point, (DRAWS, *point.shape)))


def test_graphs_that_are_missed_are_said_and_mended() -> None:
    """A table that would miss graphs that were measured says at which batch sizes, and brings the sizes needed."""
    surface = a_surface(SimulatedEngine(), batch_sizes=SIZES, ks=(0, 1, 4))
    surface = replace(surface, no_spec=_two_ks()[:, 0], dsd=_two_ks() + surface.log_tokens[None, :])
    for graphs, said_of_them in (
        (_graphs(), "emit-config gives"),
        (_graphs(sizes=(1, 2, 4, 8, 48)), "was not measured"),
    ):
        decision = decide(surface, LARGEST, None, graphs)
        assert decision.table
        assert (decision.verdict, decision.table.ks) == (Verdict.TABLE, {4, 1})
        misses = graphs.misses(decision.table)
        assert decision.capture_sizes == graphs.mending_sizes(decision.table)
        (said,) = [remark for remark in decision.remarks if "CUDA graphs" in remark]
        assert said.startswith(f"at {len(misses)} of {LARGEST} batch sizes ({misses[0]}")
        assert said_of_them in said
