"""A profile on a real `vllm serve`: applied, replaced, refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine.traffic import ServedPair, our_metrics
from serving import write_profile

from dsd_tune.engines.held_load import read_at
from dsd_tune.engines.scrape import Scrape
from dsd_tune.engines.vllm_server import VllmServer
from dsd_tune.errors import EngineFailed
from dsd_tune.probe import probe
from dsd_tune.records.table import Table
from dsd_tune.watch import watched

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TABLE = Table.from_dense([3, 3, 1, 1, 1, 1, 1, 1])
SWAPPED = Table.from_dense([1, 1, 3, 3, 3, 3, 3, 3])


@pytest.fixture(scope="module")
def tiny(quiet_cores: None, tmp_path_factory: pytest.TempPathFactory) -> ServedPair:
    """The tiny model, on one thread a process."""
    return ServedPair.tiny(tmp_path_factory.mktemp("tiny"))


def test_a_profile_runs_a_plain_server(tiny: ServedPair) -> None:
    """vLLM drafts what the profile's table says, exports what it did, and follows replaced profiles."""
    path = tiny.folder / "profile.json"
    write_profile(path, tiny.profile(TABLE))
    with tiny.serve({"DSD_TUNE_PROFILE": str(path)}) as server:
        assert "is applied: policy table, K by batch size: 1-2: 3, 3-8: 1" in server.log.read_text()
        tiny.complete(server, 8)
        assert tiny.k_of_one_request(server) == 3
        many = tiny.counted(server, 8)
        assert many.draft_tokens / many.drafts < 2
        metrics = our_metrics(server)
        # Random weights accept nothing, which is drift; but nothing was refused.
        assert metrics['state{state="refused"}'] == 0
        assert metrics['steps_total{batch_size="1",k="3"}'] > 40
        assert metrics['drafted_total{position="1"}'] > metrics['drafted_total{position="3"}'] > 0
        assert probe(TABLE, lambda batch_size: read_at(server.url, batch_size)).is_live
        assert not probe(SWAPPED, lambda batch_size: read_at(server.url, batch_size)).is_live
        assert watched(Scrape({}), Scrape.fetch(server.url)).steps["1", 3] > 40
        follow_replacements(tiny, server, path)


def follow_replacements(tiny: ServedPair, server: VllmServer, path: Path) -> None:
    """Replace the profile, once by rubbish."""
    write_profile(path, tiny.profile(SWAPPED))
    assert tiny.until(server, lambda: tiny.k_of_one_request(server) == 1)
    path.write_text("{")
    assert tiny.until(server, lambda: "what ran before goes on" in server.log.read_text())
    assert tiny.k_of_one_request(server) == 1
    write_profile(path, tiny.profile(TABLE))
    assert tiny.until(server, lambda: tiny.k_of_one_request(server) == 3)


def test_a_profile_that_does_not_fit_leaves_vllm_alone(tiny: ServedPair) -> None:
    """One line says why, and every request runs at vLLM's own fixed K."""
    path = tiny.folder / "misfit.json"
    write_profile(path, tiny.profile(TABLE))
    with tiny.serve({"DSD_TUNE_PROFILE": str(path)}, k_max=2) as server:
        tiny.complete(server, 8)
        assert tiny.k_of_one_request(server) == 2
        lines = [line for line in server.log.read_text().splitlines() if "dsd-tune" in line]
        assert ["needs K=3, and num_speculative_tokens is 2" in line for line in lines] == [True]
        assert our_metrics(server)['state{state="refused"}'] == 1


def test_strictness_refuses_to_start(tiny: ServedPair) -> None:
    """Instead of serving without the profile, `vllm serve` ends, and its last words say why."""
    path = tiny.folder / "misfit.json"
    write_profile(path, tiny.profile(TABLE))
    refusal = pytest.raises(EngineFailed, match="needs K=3, and num_speculative_tokens is 2")
    with refusal, tiny.serve({"DSD_TUNE_PROFILE": str(path), "DSD_TUNE_STRICT": "1"}, k_max=2):
        pass
