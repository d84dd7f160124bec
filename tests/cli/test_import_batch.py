"""Whose batch size, K and arm a number belongs to: `dsd-tune import` on real files."""

from pathlib import Path

import pytest
from importing import DATA, GRIDS, Said, bench_result, written

from dsd_tune.storage.published import load


def test_offered_concurrency_is_not_batch_size(run: Path) -> None:
    """Case 3: a log of what really ran drops the row of 512 offered, of which 63 ran."""
    grid = GRIDS / "nemotron_super_bf16_1k10k_v028.csv"
    said = Said(grid, DATA / "offered_vs_running.csv", "--where", "model=super", "-o", run)
    assert said.code == 0
    assert "left out 5 of batch size 512: of 512 offered only 63 ran" in said.notes
    assert max(row.cell.batch_size for row in load(run).rows) == 128


def test_row_is_keyed_by_the_batch_that_ran(tmp_path: Path, run: Path) -> None:
    """Case 3: 61 running of 64 offered is a number at batch size 61; 40 of 64 is a number at none."""
    text = "offered,running,k,tpot_ms\n64,61,0,10\n64,40,1,8\n"
    said = Said(written(tmp_path / "grid.csv", text), "-o", run)
    assert [row.cell.batch_size for row in load(run).rows] == [61]
    assert "of 64 offered only 40 ran" in said.notes


def test_log_alone_is_no_measurement(run: Path) -> None:
    """Case 3: where all that was offered did not run, nothing is imported, and the refusal says what ran."""
    said = Said(DATA / "offered_vs_running.csv", "--where", "model=super", "-o", run)
    assert said.code == 2
    assert "of 512 offered only 63 ran" in said.error
    assert not run.exists()


def test_fewer_were_decoding_than_offered(tmp_path: Path, run: Path) -> None:
    """Case 3: tokens a second times TPOT is the batch that decoded; under 0.9 of what was offered drops the result."""
    starved = bench_result(tmp_path / "starved.json", output_throughput=900.0)
    said = Said(DATA / "bench_serve_k0.json", starved, "-o", run)
    assert said.code == 0
    assert "of 64 offered only 31 were decoding (starved.json)" in said.notes
    assert [row.cell.k for row in load(run).rows] == [0]


def test_one_request_alone_may_prefill_for_long(tmp_path: Path, run: Path) -> None:
    """At concurrency 1 the batch is 1 however long prefill took, but TPOT divided by chunks is left out."""
    changed = {"max_concurrency": 1, "output_throughput": 10.0}
    Said(bench_result(tmp_path / "slow_prefill.json", **changed), "-o", run)
    assert [row.cell.batch_size for row in load(run).rows] == [1]
    said = Said(bench_result(tmp_path / "chunks.json", **changed, mean_tpot_ms=0.24), "-o", run, "--force")
    assert "divided by chunks" in said.error


def test_k0_tax_and_graph_mode_are_said_to_be_missing(run: Path) -> None:
    """Case 5: fixed-K engines and an engine without speculation know neither the K=0 tax nor the table's graphs."""
    said = Said(GRIDS / "rl_qwen3_32b_openmath_gb200.csv", "--arm", "static", "--k0", "no_spec", "-o", run)
    assert "the K=0 tax is not in these numbers" in said.notes
    assert "the table's CUDA-graph mode is not in these numbers" in said.notes
    assert "assumed: " not in said.notes


def test_table_engine_at_k0_is_not_speculation_off(run: Path) -> None:
    """Case 5: rows declared as a table's K=0 leave speculation off untested."""
    said = Said(GRIDS / "rl_qwen3_32b_openmath_gb200.csv", "--arm", "dsd", "--k0", "dsd", "-o", run)
    assert {row.cell.arm for row in load(run).rows} == {"dsd"}
    assert "speculation off was not tested" in said.notes
    assert "not in these numbers" not in said.notes


def test_undeclared_arms_are_assumed_aloud(run: Path) -> None:
    """An arm that was not declared is assumed to be the one with more caveats, and the assumption is kept."""
    Said(GRIDS / "rl_qwen3_32b_openmath_gb200.csv", "-o", run)
    remarks = " ".join(load(run).remarks)
    assert "--arm static is assumed" in remarks
    assert "--k0 no_spec is assumed" in remarks


def test_context_length_is_not_batch_size(run: Path) -> None:
    """Case 17: a grid over context length is refused, since a table by batch size cannot express it."""
    said = Said(GRIDS / "vllm_gemma4_31b_ctx_by_k_c256_h100.csv", "-o", run)
    assert said.code == 2
    assert "axis ctx" in said.error
    assert "cannot express it" in said.error


def test_unlike_fingerprints_are_refused(tmp_path: Path, run: Path) -> None:
    """Case 19: dummy weights in one arm refuse the import, naming the key and both values, with exit code 6."""
    one = bench_result(tmp_path / "a.json", load_format="auto")
    two = bench_result(tmp_path / "b.json", load_format="dummy", max_concurrency=64)
    said = Said(one, two, "-o", run)
    assert said.code == 6
    assert "load_format: 'auto' against 'dummy'" in said.error


def test_unlike_rows_of_one_file_are_refused(run: Path) -> None:
    """Case 19: rows of two workloads are not one grid; `--where` chooses one of them."""
    grid = GRIDS / "vllm_a100_llama31_8b_eagle_k1_short_vs_long.csv"
    said = Said(grid, "-o", run)
    assert said.code == 6
    assert "workload: 'short' against 'long'" in said.error
    assert Said(grid, "--where", "workload=long", "-o", run).code == 0
    assert {row.acceptance.length for row in load(run).rows if row.acceptance} == {1.76}


def test_unlike_depths_are_refused(tmp_path: Path, run: Path) -> None:
    """Case 16: sweeps of 2,048 and 32,768 generated tokens are not merged, and a run records its depth."""
    grid = written(tmp_path / "depth.csv", "forced_osl,batch_size,k,tpot_ms\n2048,1,0,5\n32768,1,0,6\n")
    said = Said(grid, "-o", run)
    assert said.code == 6
    assert "forced_osl: '2048' against '32768'" in said.error
    lengths = [bench_result(tmp_path / f"{n}.json", total_output_tokens=640 * n) for n in (229, 3000)]
    said = Said(*lengths, "-o", run)
    assert said.code == 6
    assert "output tokens a request: 229 against 3000" in said.error
    Said(lengths[0], "-o", run)
    assert load(run).fact("output tokens a request") == "229"


def test_isl_and_osl_are_recorded_and_compared(run: Path) -> None:
    """Case 16: input and output lengths from a grid's header are facts, so two depths are not merged."""
    grids = [GRIDS / f"nemotron_super_bf16_{depth}_v028.csv" for depth in ("10k1k", "1k10k")]
    assert Said(*grids, "-o", run).code == 6
    Said(grids[0], "-o", run)
    assert (load(run).fact("isl"), load(run).fact("osl")) == ("10000", "1000")


@pytest.mark.parametrize("grid", ["rl_nemotron_super_depth_x_bs_speedup", "vllm_k0_sync_forward_rtx5090"])
def test_ratios_and_nameless_ks_are_no_grid(grid: str, run: Path) -> None:
    """A table of speed-ups, or of arms without a K, is refused for the column it lacks."""
    said = Said(GRIDS / f"{grid}.csv", "-o", run)
    assert said.code == 2
    assert "no column k" in said.error


@pytest.mark.parametrize("grid", ["sglang_qwen3_235b_eagle_autospec", "dgxspark_glm53_dflash2_k5_k7"])
def test_missing_k0_is_said(grid: str, run: Path) -> None:
    """Case 20: without rows at K=0, off was not tested."""
    assert "speculation off was not tested" in Said(GRIDS / f"{grid}.csv", "-o", run).notes


def test_missing_cells_are_listed(run: Path) -> None:
    """Case 20: 13 missing cells are counted, and the best of what is there is not called the best."""
    said = Said(GRIDS / "nemotron_super_bf16_10k1k_v028.csv", "-o", run)
    assert "missing cells (13): (1, K=1), (1, K=2)" in said.notes
    assert "may not be the best" in said.notes


@pytest.mark.parametrize("grid", ["strixhalo_qwen36_35b_a3b_mtp_c1", "vllm_h100_llama31_8b_eagle_bs1"])
def test_one_batch_size_is_said(grid: str, run: Path) -> None:
    """Case 20: one batch size supports a fixed K, and no table."""
    assert "one batch size (1) supports a fixed K, and no table" in Said(GRIDS / f"{grid}.csv", "-o", run).notes


def test_two_temperatures_are_not_one_grid(tmp_path: Path, run: Path) -> None:
    """Case 56: sampling is part of the fingerprint, since the best K moves with temperature."""
    results = [bench_result(tmp_path / f"{t}.json", temperature=t) for t in (0.0, 1.0)]
    said = Said(*results, "-o", run)
    assert said.code == 6
    assert "temperature: '0.0' against '1.0'" in said.error


def test_rows_of_a_table_have_no_k(tmp_path: Path, run: Path) -> None:
    """Rows that ran under a table are left out and named, since no one K made them."""
    grid = written(tmp_path / "g.csv", "batch_size,k,tpot_ms\n1,0,5\n1,2,4\n1,dynamic,3\n1,-1,3\n")
    said = Said(grid, "-o", run)
    assert "line 4 ran under a table (K dynamic)" in said.notes
    assert sorted(row.cell.k for row in load(run).rows) == [0, 2]


def test_arm_column_keeps_arms_apart(tmp_path: Path, run: Path) -> None:
    """Arms named in a column are kept as they are, and an unknown word is refused."""
    header = "batch_size,k,arm,tpot_ms\n1,0,no_spec,5\n1,2,static,4\n"
    Said(written(tmp_path / "g.csv", f"{header}1,2,dsd,4.2\n"), "-o", run)
    assert sorted(row.cell.arm for row in load(run).rows) == ["dsd", "no_spec", "static"]
    said = Said(written(tmp_path / "h.csv", f"{header}1,2,stock,4.2\n"), "-o", run, "--force")
    assert said.code == 2
    assert "arm 'stock' is unknown" in said.error
