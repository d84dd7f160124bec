"""`dsd-tune import` on real files: each test is a way in which published numbers mislead."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dsd_tune.cli.import_ import import_
from dsd_tune.errors import DsdTuneError
from dsd_tune.storage.published import load

DATA = Path(__file__).parents[1] / "data" / "imports"
GRIDS = DATA / "grids"


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, *words: object) -> None:
        app = typer.Typer()
        app.command()(import_)
        result = CliRunner().invoke(app, [str(word) for word in words])
        self.out, self.notes, self.code = result.stdout, result.stderr, result.exit_code
        self.error = ""
        if isinstance(result.exception, DsdTuneError):
            self.code, self.error = result.exception.exit_code, str(result.exception)
        elif result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory that does not exist yet."""
    return tmp_path / "run"


def written(path: Path, text: str) -> Path:
    """A file with that text."""
    path.write_text(text)
    return path


def bench_result(path: Path, **changed: object) -> Path:
    """The K=3 result of `vllm bench serve`, with `changed` keys; None removes a key."""
    result = json.loads((DATA / "bench_serve_k3.json").read_text()) | changed
    return written(path, json.dumps({key: value for key, value in result.items() if value is not None}))


@pytest.mark.parametrize("grid", ["rl_qwen3_30ba3b_openmath_gb200", "rl_nemotron_super_fp8_swe_gb200"])
def test_published_grid_becomes_a_run_directory(grid: str, run: Path) -> None:
    """A grid is kept cell by cell, and the last line is the command that goes on."""
    said = Said(GRIDS / f"{grid}.csv", "-o", run)
    rows = load(run).rows
    assert said.code == 0
    assert said.out == f"dsd-tune fit {run}\n"
    assert len(rows) == sum(line[:1].isdigit() for line in (GRIDS / f"{grid}.csv").read_text().splitlines())
    assert {row.cell.arm for row in rows} == {"no_spec", "static"}


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


def test_mixed_k_counters_are_refused(run: Path) -> None:
    """Case 7: counters of a table with two Ks give no rate by position, since undrafted ones count in it."""
    said = Said(DATA / "metrics_mixed_k.prom", "-o", run)
    assert said.code == 2
    assert "mixes more than one K: 1.50 tokens a draft" in said.error


def test_mixed_k_that_averages_to_a_whole_number_is_refused(tmp_path: Path, run: Path) -> None:
    """Case 7: as many drafts at K=3 as at K=1 average to 2, and the third position betrays them."""
    text = (
        (DATA / "metrics_mixed_k.prom")
        .read_text()
        .replace('total{engine="0",model_name="m"} 6000', 'total{engine="0",model_name="m"} 8000')
    )
    said = Said(written(tmp_path / "m.prom", text), "-o", run)
    assert said.code == 2
    assert "mixes more than one K: 2.00 tokens a draft, 3 positions" in said.error


def test_ngram_steps_without_a_draft_count(tmp_path: Path, run: Path) -> None:
    """Case 8: of 5376 tokens 821 came from steps without a draft, so a step yields 2.96 tokens and not 4.59."""
    text = "method,k,num_drafts,draft_tokens,accepted_tokens,output_tokens\nngram,5,993,4960,3562,5376\n"
    said = Said(written(tmp_path / "ngram.csv", text), "-o", run)
    assert said.code == 0
    assert "Acceptance length at K=5: 2.964" in said.notes


def test_ngram_without_output_tokens_is_refused(run: Path) -> None:
    """Case 8: a printed n-gram acceptance length of 4.59 is refused, with what would help."""
    said = Said(GRIDS / "acceptance_per_position.csv", "--where", "drafter=ngram", "-o", run)
    assert said.code == 2
    assert "4.59" in said.error
    assert "output tokens" in said.error


def test_ngram_declared_by_flag(run: Path) -> None:
    """Case 8: `--method ngram` speaks for files that do not name a method."""
    said = Said(DATA / "bench_serve_k3.json", "--method", "ngram", "-o", run)
    assert said.code == 2
    assert "many steps draft nothing" in said.error


def test_file_with_only_itl_is_refused(tmp_path: Path, run: Path) -> None:
    """Case 9: the time between outputs is no time per token under speculation."""
    grid = Said(written(tmp_path / "itl.csv", "batch_size,k,median_itl_ms\n64,1,22.4\n64,8,159.6\n"), "-o", run)
    silent = bench_result(tmp_path / "itl.json", output_throughput=None, mean_tpot_ms=None, median_tpot_ms=None)
    result = Said(silent, "-o", run)
    for said in (grid, result):
        assert said.code == 2
        assert "only ITL" in said.error


def test_itl_beside_tpot_is_not_used(run: Path) -> None:
    """Case 9: with TPOT given, K=8 is faster than K=1 although its ITL is seven times longer."""
    Said(GRIDS / "vllm_pr48892_mtp1_mtp8_gsm8k_c64.csv", "-o", run)
    tpot = {row.cell.k: row.tpot_s for row in load(run).rows}
    assert tpot == {1: pytest.approx(0.03718), 8: pytest.approx(0.02748)}


def test_peaks_are_not_used(run: Path) -> None:
    """Case 9: 97 peak requests at a concurrency of 64 are counted by chunks; the batch size is 64."""
    Said(DATA / "bench_serve_k3.json", "-o", run)
    assert [row.cell.batch_size for row in load(run).rows] == [64]


def test_context_length_is_not_batch_size(run: Path) -> None:
    """Case 17: a grid over context length is refused, since a table by batch size cannot express it."""
    said = Said(GRIDS / "vllm_gemma4_31b_ctx_by_k_c256_h100.csv", "-o", run)
    assert said.code == 2
    assert "axis ctx" in said.error
    assert "cannot express it" in said.error


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


def test_luck_in_the_text_is_named(run: Path) -> None:
    """Case 2: AL 5.85 at batch size 1 is luck, Ks without AL are undecided there, and 97 % is repetition."""
    said = Said(GRIDS / "nemotron_super_bf16_1k10k_v028.csv", "-o", run)
    assert "static B=1 K=5: acceptance length 5.85 against 5.29 over all batch sizes is luck" in said.notes
    assert "at batch sizes 1, 2, 4 the best K is undecided on one run" in said.notes
    assert "97% of the drafts were accepted at static B=1 K=5" in said.notes


@pytest.mark.parametrize(
    ("header", "column", "declared"),
    [
        ("# source: vLLM PR 25784 (suffix decoding)\n", "", ()),
        ("# method: suffix\n", "", ()),
        ("# drafter: Suffix, with cache\n", "", ()),
        ("", "suffix", ()),
        ("", "", ("--method", "suffix")),
    ],
    ids=["source", "method", "drafter", "column", "flag"],
)
def test_suffix_decoding_is_refused(
    header: str, column: str, declared: tuple[str, ...], tmp_path: Path, run: Path
) -> None:
    """Case 35: suffix decoding drafts what it finds; vLLM runs no table with it, whoever says that it is suffix."""
    rows = "".join(f"{b},{k},{t},{column}\n" for b, t in ((1, 4.4), (16, 5.9)) for k in (5, 32))
    said = Said(
        written(tmp_path / "g.csv", f"{header}batch_size,k,tpot_ms,{'method' if column else 'note'}\n{rows}"),
        *declared,
        "-o",
        run,
    )
    assert said.code == 2
    assert "K is only a cap, TPOT does not move with it here" in said.error
    assert not run.exists()


def test_published_suffix_grid_is_refused(run: Path) -> None:
    """Case 35: the published grid of suffix decoding is refused as it is, with what its times show."""
    said = Said(GRIDS / "vllm_suffix_specbench_tpot_h200_partial.csv", "-o", run)
    assert said.code == 2
    assert "TPOT does not move with it here" in said.error


def test_other_methods_in_a_header_are_facts(tmp_path: Path, run: Path) -> None:
    """A header names the method as a column would: kept for a fact, and believed where acceptance is worked out."""
    text = "batch_size,k,tpot_ms,acceptance_length\n1,2,5,1.9\n"
    assert Said(written(tmp_path / "eagle.csv", f"# method: eagle3\n{text}"), "-o", run).code == 0
    assert load(run).fact("method") == "eagle3"
    said = Said(written(tmp_path / "ngram.csv", f"# method: ngram\n{text}"), "-o", run, "--force")
    assert "with method ngram leaves out the steps without a draft" in said.error


TRTLLM = {"max_num_seqs": 64, "draft_len_schedule": {"4": 3, "8": 2, "32": 1}}
SGLANG = {"max_num_seqs": 256, "bs_params": {"1": 3, "64": 2, "128": 1}}


@pytest.mark.parametrize(
    ("name", "document", "lists"),
    [
        ("trtllm", TRTLLM, [[1, 4, 3], [5, 8, 2], [9, 32, 1], [33, 64, 0]]),
        ("sglang", SGLANG, [[1, 63, 3], [64, 127, 2], [128, 256, 1]]),
    ],
)
def test_foreign_tables_differ_by_one_in_opposite_directions(
    name: str, document: object, lists: list[list[int]], tmp_path: Path
) -> None:
    """Case 41: TensorRT-LLM's keys end a range, SGLang's keys begin one."""
    said = Said(written(tmp_path / f"{name}.json", json.dumps(document)))
    assert json.loads(said.out) == {
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": lists,
    }


def test_tables_own_file_formats(tmp_path: Path) -> None:
    """Case 41: an LLM-API YAML and an adaptive config are read as their servers take them."""
    pytest.importorskip("yaml")
    trt = "max_batch_size: 16\nspeculative_config:\n  decoding_type: Eagle\n  draft_len_schedule: {4: 4, 8: 2}\n"
    sglang = {"8": {"candidate_steps": [1]}, "2": {"candidate_steps": [3]}, "ema_alpha": 0.2}
    said = Said(written(tmp_path / "llm.yaml", trt))
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 4, 4], [5, 8, 2], [9, 16, 0]]
    said = Said(written(tmp_path / "sglang.json", json.dumps(sglang)), "--max-num-seqs", 16)
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 7, 3], [8, 16, 1]]


def test_tensorrt_llm_is_off_above_its_max_concurrency(tmp_path: Path) -> None:
    """TensorRT-LLM drafts nothing above max_concurrency, whatever its schedule says."""
    config = {
        "max_batch_size": 32,
        "speculative_config": {"max_concurrency": 6, "draft_len_schedule": {"4": 3, "8": 2}},
    }
    said = Said(written(tmp_path / "trt.json", json.dumps(config)))
    assert json.loads(said.out)["num_speculative_tokens_per_batch_size"] == [[1, 4, 3], [5, 6, 2], [7, 32, 0]]


def test_adaptive_tiers_with_a_choice_are_refused(tmp_path: Path) -> None:
    """SGLang tiers that choose among steps while they run are no table."""
    tiers = {"1": {"candidate_steps": [1, 3, 5]}, "8": {"candidate_steps": [0]}}
    said = Said(written(tmp_path / "sglang.json", json.dumps(tiers)), "--max-num-seqs", 16)
    assert said.code == 2
    assert "chooses among [1, 3, 5]" in said.error


def test_foreign_table_without_an_end_is_refused(tmp_path: Path) -> None:
    """A table is closed at a stated size, never where its last key happens to be."""
    path = written(tmp_path / "trt.json", json.dumps({"draft_len_schedule": {"4": 3}}))
    said = Said(path)
    assert said.code == 2
    assert "--max-num-seqs" in said.error
    assert json.loads(Said(path, "--max-num-seqs", 2).out) == {"num_speculative_tokens": 3}


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


def test_two_temperatures_are_not_one_grid(tmp_path: Path, run: Path) -> None:
    """Case 56: sampling is part of the fingerprint, since the best K moves with temperature."""
    results = [bench_result(tmp_path / f"{t}.json", temperature=t) for t in (0.0, 1.0)]
    said = Said(*results, "-o", run)
    assert said.code == 6
    assert "temperature: '0.0' against '1.0'" in said.error


@pytest.mark.parametrize("name", ["", "summary.csv"])
def test_bench_sweep_folder(name: str, run: Path) -> None:
    """A `vllm bench sweep` folder tells its arms itself, and that they ran one after the other."""
    said = Said(DATA / "vllm_bench_sweep" / name, "-o", run)
    cells = sorted(str(row.cell) for row in load(run).rows)
    assert cells == ["no_spec B=1 K=0", "no_spec B=8 K=0", "static B=1 K=1", "static B=8 K=1"]
    assert "ran one after the other" in said.notes
    assert "assumed: " not in said.notes
    assert load(run).fact("method") == "eagle"


def test_appended_results_are_read(tmp_path: Path, run: Path) -> None:
    """`vllm bench serve --append-result` writes a result a line; each is a row, and repeats stay apart."""
    lines = [(DATA / f"bench_serve_{k}.json").read_text().strip() for k in ("k0", "k3", "k3")]
    Said(written(tmp_path / "all.json", "\n".join(lines)), "-o", run)
    assert [row.cell.k for row in load(run).rows] == [0, 3, 3]


def test_throughput_alone_holds_prefill(tmp_path: Path, run: Path) -> None:
    """TPOT worked out from throughput is said to hold prefill."""
    said = Said(written(tmp_path / "g.csv", "batch_size,k,output_tok_s\n8,0,800\n"), "-o", run)
    assert load(run).rows[0].tpot_s == pytest.approx(0.01)
    assert "the share that prefill took is in it" in said.notes


def test_units_must_be_known(tmp_path: Path, run: Path) -> None:
    """A time without a unit and tokens that may include the prompt's are refused until declared."""
    grid = written(tmp_path / "grid.csv", "batch_size,k,tpot\n1,0,5\n")
    said = Said(grid, "-o", run)
    assert said.code == 2
    assert "column tpot does not say its unit" in said.error
    Said(grid, "--unit", "tpot=us", "-o", run)
    assert load(run).rows[0].tpot_s == pytest.approx(5e-6)
    said = Said(written(tmp_path / "t.csv", "batch_size,k,throughput\n1,0,500\n"), "-o", run)
    assert "prompt tokens" in said.error


def test_units_that_contradict_are_refused(tmp_path: Path, run: Path) -> None:
    """Throughput and TPOT that need ten times the requests offered show that one has the wrong unit."""
    said = Said(written(tmp_path / "g.csv", "batch_size,k,tpot_ms,output_tok_s\n8,0,100,800\n"), "-o", run)
    assert said.code == 2
    assert "need 80 requests, not 8" in said.error


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


def test_nothing_is_overwritten(run: Path) -> None:
    """A second import into the same directory needs --force."""
    grid = GRIDS / "vllm_h100_llama3_8b_eagle_bs1.csv"
    Said(grid, "-o", run)
    assert Said(grid, "-o", run).code == 2
    assert Said(grid, "-o", run, "--force").code == 0


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("a.csv", "batch_size,k,tpot_ms\n1,0\n", "line 2"),
        ("b.csv", "batch_size,k,tpot_ms\n1,0,fast\n", "fast"),
        ("c.csv", "batch_size,k,tpot_ms\n1,0,-5\n", "positive"),
        ("d.csv", "batch_size,k,tpot_ms\n0,0,5\n", "batch size"),
        ("e.csv", "", "no CSV table"),
        ("f.csv", "batch_size,k,tpot_ms,acceptance_length\n1,2,5,3.5\n", "acceptance length"),
        ("g.csv", "k,tpot_ms\n1,5\n", "batch_size"),
        ("h.csv", "batch_size,k,tpot_ms\n1,0,nan\n", "no number"),
        ("i.json", "{}", "no format"),
        ("k.csv", "batch_size,k,tpot_ms\n1,,5\n", "no K"),
        ("j.bin", "\x01\x02", "no format"),
    ],
)
def test_damaged_files_are_refused(name: str, text: str, word: str, tmp_path: Path, run: Path) -> None:
    """A file that cannot be understood is refused in one sentence that names the place, and nothing is written."""
    said = Said(written(tmp_path / name, text), "-o", run)
    assert said.code == 2
    assert word in said.error
    assert not run.exists()


def test_unknown_column_in_where(run: Path) -> None:
    """A misspelt column in --where is refused, instead of choosing everything."""
    said = Said(GRIDS / "vllm_h100_llama3_8b_eagle_bs1.csv", "--where", "mode=x", "-o", run)
    assert said.code == 2
    assert "mode" in said.error


def test_json_is_for_scripts(run: Path) -> None:
    """--json prints rows, acceptance lengths and caveats as one document."""
    said = Said(DATA / "bench_serve_k3.json", "-o", run, "--json")
    document = json.loads(said.out)
    assert document["acceptance_lengths"] == {"3": pytest.approx(2.401)}
    assert document["published"]["rows"][0]["cell"] == {"arm": "static", "batch_size": 64, "k": 3}
    assert any("one batch size" in caveat for caveat in document["caveats"])


@pytest.mark.parametrize(
    "row", ["65537,1,5", "1e18,1,5", "1,1025,5", "1,1e300,5"], ids=["batch", "huge batch", "K", "huge K"]
)
def test_a_number_in_the_wrong_column_is_refused(row: str, tmp_path: Path, run: Path) -> None:
    """A batch size or K beyond what any server runs is refused with its line, and nothing is written."""
    said = Said(written(tmp_path / "grid.csv", f"batch_size,k,tpot_ms\n1,0,5\n{row}\n"), "-o", run)
    assert said.code == 2
    assert "grid.csv, line 3" in said.error
    assert not run.exists()


def test_a_place_that_may_not_be_seen_is_refused(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path inside a folder that may not be entered is refused in one sentence."""

    def forbidden(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", forbidden)
    said = Said(tmp_path / "closed" / "grid.csv", "-o", run)
    assert said.code == 2
    assert "grid.csv cannot be read: Permission denied" in said.error


def test_acceptance_alone_leads_to_no_fit(tmp_path: Path, run: Path) -> None:
    """An import without a time of any cell says what is missing, and names no command that would fail."""
    said = Said(written(tmp_path / "acceptance.csv", "k,acceptance_length\n1,1.6\n2,1.9\n"), "-o", run)
    assert (said.code, said.out) == (0, "")
    assert "no time of a cell" in said.notes
