"""Acceptance from counters, percentages and rates: each test is a way in which they mislead."""

from pathlib import Path

import pytest
from importing import DATA, GRIDS, Said, bench_result, written

from dsd_tune.storage.published import load


def test_random_prompts_give_step_time_and_no_acceptance(tmp_path: Path, run: Path) -> None:
    """Case 18: 11.96 % acceptance on random tokens is left out, and its step time stays."""
    counts = {"spec_decode_draft_tokens": 180000, "spec_decode_accepted_tokens": 21528, "dataset_name": "random"}
    random = bench_result(tmp_path / "random.json", **counts, spec_decode_per_position_acceptance_rates=None)
    said = Said(random, "-o", run)
    (row,) = load(run).rows
    assert "acceptance left out: random.json ran random prompts" in said.notes
    assert (row.acceptance, row.tpot_s) == (None, None)
    assert row.step_s == pytest.approx(0.0339 * (1 + 21528 / 60000))


def test_random_prompts_are_believed_on_demand(tmp_path: Path, run: Path) -> None:
    """Case 18: `--allow-synthetic` takes acceptance from random prompts."""
    said = Said(bench_result(tmp_path / "r.json", dataset_name="random"), "--allow-synthetic", "-o", run)
    assert "Acceptance length at K=3: 2.401" in said.notes


def test_luck_in_the_text_is_named(run: Path) -> None:
    """Case 2: AL 5.85 at batch size 1 is luck, Ks without AL are undecided there, and 97 % is repetition."""
    said = Said(GRIDS / "nemotron_super_bf16_1k10k_v028.csv", "-o", run)
    assert "static B=1 K=5: acceptance length 5.85 against 5.29 over all batch sizes is luck" in said.notes
    assert "at batch sizes 1, 2, 4 the best K is undecided on one run" in said.notes
    assert "97% of the drafts were accepted at static B=1 K=5" in said.notes


def test_percent_and_fraction(run: Path) -> None:
    """Case 50: AL comes from the counts, 1 + 84060/60000, and 46.7 is a percentage beside rates that are fractions."""
    Said(DATA / "bench_serve_k3.json", "-o", run)
    (row,) = load(run).rows
    assert row.acceptance is not None
    assert row.acceptance.length == pytest.approx(2.401)
    assert row.acceptance.rates == pytest.approx((0.72, 0.43, 0.251))


def test_no_drafts_leave_acceptance_undefined(run: Path) -> None:
    """Case 50: without drafts vLLM writes no acceptance, which is then neither 0 nor an error."""
    said = Said(DATA / "bench_serve_k0.json", "-o", run)
    (row,) = load(run).rows
    assert said.code == 0
    assert (row.cell.k, row.acceptance) == (0, None)


def test_percentages_in_a_grid_must_be_declared(tmp_path: Path, run: Path) -> None:
    """Case 50: a column acceptance_rate may be either; declared, it gives AL = 1 + rate*K."""
    grid = written(tmp_path / "grid.csv", "batch_size,k,tpot_ms,acceptance_rate\n1,3,5,46.7\n")
    said = Said(grid, "-o", run)
    assert said.code == 2
    assert "--unit acceptance_rate=percent or --unit acceptance_rate=fraction" in said.error
    assert "K=3: 2.401" in Said(grid, "--unit", "acceptance_rate=percent", "-o", run).notes


def test_percentages_by_position_are_refused(tmp_path: Path, run: Path) -> None:
    """Case 50: rates by position above 1 are percentages, and refused unless their columns say so."""
    rows = "64,1,20,83.59\n"
    said = Said(written(tmp_path / "a.csv", f"batch_size,k,tpot_ms,p0\n{rows}"), "-o", run)
    assert said.code == 2
    assert "percentage" in said.error
    assert Said(written(tmp_path / "b.csv", f"batch_size,k,tpot_ms,p0_pct\n{rows}"), "-o", run).code == 0


def test_engines_are_summed(run: Path) -> None:
    """Case 51: two engines with AL 3.0 and 1.99 pool to 2.25, not to their mean."""
    said = Said(DATA / "metrics_dp2.prom", "-o", run)
    assert "Acceptance length at K=3: 2.250" in said.notes
    assert "one scrape" in said.notes


def scrape(drafts: float, drafted: float, accepted: float, engine: int = 0) -> str:
    """The counters of one engine."""
    labels = f'{{engine="{engine}",model_name="m"}}'
    return (
        f"vllm:spec_decode_num_drafts_total{labels} {drafts}\n"
        f"vllm:spec_decode_num_drafts_created{labels} 1.79e+09\n"
        f"vllm:spec_decode_num_draft_tokens_total{labels} {drafted}\n"
        f"vllm:spec_decode_num_accepted_tokens_total{labels} {accepted}\n"
    )


def test_two_scrapes_are_differenced(tmp_path: Path, run: Path) -> None:
    """Case 51: counters go back to the server's start; the difference of two scrapes is what was measured."""
    before = written(tmp_path / "before.prom", scrape(1000, 3000, 3000))
    after = written(tmp_path / "after.prom", scrape(1400, 4200, 3500))
    said = Said(before, after, "-o", run)
    assert "Acceptance length at K=3: 2.250" in said.notes
    assert load(run).acceptance[0].drafts == 400


def test_restart_between_scrapes_is_refused(tmp_path: Path, run: Path) -> None:
    """Case 51: one engine that began anew refuses the pair, although the sum over engines rose."""
    before = written(tmp_path / "before.prom", scrape(1000, 3000, 2000) + scrape(1000, 3000, 2000, engine=1))
    after = written(tmp_path / "after.prom", scrape(5000, 15000, 9000) + scrape(10, 30, 20, engine=1))
    said = Said(before, after, "-o", run)
    assert said.code == 2
    assert "restarted" in said.error
    assert "engine=1" in said.error


def test_rates_do_not_transfer_between_k(run: Path) -> None:
    """Case 54: the first draft of a multi-layer MTP is accepted 83.6 % at K=1 and 75.7 % at K=8."""
    said = Said(GRIDS / "acceptance_per_position.csv", "--where", "source=vllm PR 48892", "-o", run)
    assert "83.6% at K=1 and 75.7% at K=8: rates do not transfer" in said.notes
    assert "Acceptance length at K=8: 4.402" in said.notes


def test_a_longer_k_cut_short_is_only_a_prediction(run: Path) -> None:
    """Case 54: dropping positions of K=4 foretells 2.44 tokens a step at K=2, and 2.31 were measured: both are said."""
    said = Said(GRIDS / "acceptance_per_position.csv", "--where", "model=gemma4-26b-a4b NVFP4", "-o", run)
    assert "from K=4 follow 2.44 tokens a step at K=2, measured 2.31" in said.notes


def test_acceptance_is_pooled_and_not_averaged(tmp_path: Path, run: Path) -> None:
    """Case 52: 100 drafts with AL 3 and 300 with AL 2 pool to 2.25; lengths without counts are said to be such."""
    header = "batch_size,k,tpot_ms,num_drafts,draft_tokens,accepted_tokens\n"
    said = Said(written(tmp_path / "g.csv", f"{header}1,3,9,100,300,200\n8,3,10,300,900,300\n"), "-o", run)
    assert "Acceptance length at K=3: 2.250" in said.notes
    assert "without counts" not in said.notes
    bare = written(tmp_path / "h.csv", "batch_size,k,tpot_ms,mean_acceptance_length\n1,3,9,3.0\n8,3,10,2.0\n")
    assert "a mean over requests is another number" in Said(bare, "-o", run, "--force").notes


def test_acceptance_alone_leads_to_no_fit(tmp_path: Path, run: Path) -> None:
    """An import without a time of any cell says what is missing, and names no command that would fail."""
    said = Said(written(tmp_path / "acceptance.csv", "k,acceptance_length\n1,1.6\n2,1.9\n"), "-o", run)
    assert (said.code, said.out) == (0, "")
    assert "no time of a cell" in said.notes
