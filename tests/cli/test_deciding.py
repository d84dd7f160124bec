"""`import`, `fit` and `emit-config` on grids that people published: each test is a way in which a table misleads."""

import csv
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.storage import formats

GRIDS = Path(__file__).parents[1] / "data" / "imports" / "grids"
QWEN_MOE = "rl_qwen3_30ba3b_openmath_gb200"
QWEN_DENSE = "rl_qwen3_32b_openmath_gb200"
SUPER = "rl_nemotron_super_fp8_openmath_gb200"
LUCKY = "nemotron_super_bf16_1k10k_v028"
DGX_SPARK = "dgxspark_glm53_dflash2_k5_k7"
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Decided:
    """What `fit` said of a grid, and the profile it left."""

    code: int
    shown: str
    profile: Profile
    path: Path

    @property
    def said(self) -> str:
        """What was shown, on one line."""
        return " ".join(self.shown.split())

    def k_at(self, batch_size: int) -> int:
        """K of the table at a batch size."""
        table = self.profile.decision.table
        assert table
        return table.k_at(batch_size)


@pytest.fixture(autouse=True)
def _few_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bend's interval is a matter of test_cost; here its refits only cost time."""
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)


@pytest.fixture
def decide(cli: Any, tmp_path: Path) -> Any:
    """Imports a grid, by name or as CSV text, and fits it with the given flags."""

    def run(grid: str, *flags: object, declared: tuple[str, ...] = ("--arm", "static", "--k0", "no_spec")) -> Decided:
        file, folder = GRIDS / f"{grid}.csv", tmp_path / "run"
        if "\n" in grid:
            file = tmp_path / "grid.csv"
            file.write_text(grid)
        imported = cli("import", file, *declared, "-o", folder, "--force")
        assert imported.code == 0, imported.err
        said = cli("fit", folder, *flags)
        path = folder / "profile.json"
        assert path.exists(), said.err
        return Decided(said.code, said.out, formats.read(formats.PROFILE, path), path)

    return run


def csv_grid(*rows: tuple[int, int, float]) -> str:
    """A grid of batch size, K and TPOT in ms."""
    return "batch_size,k,tpot_ms\n" + "".join(f"{b},{k},{tpot}\n" for b, k, tpot in rows)


def test_a_k_is_not_carried_across_a_cliff(decide: Any) -> None:
    """K=5 wins at 64 and falls off a cliff before 128: it ends at 64, and 65 to 127 are said not to be measured."""
    decided = decide(QWEN_MOE)
    assert [decided.k_at(b) for b in (4, 8, 16, 32, 64)] == [5] * 5
    assert 5 not in {decided.k_at(b) for b in range(65, 129)}
    assert "not measured between 64 and 128" in decided.said
    assert "K=5 is not used between B=64 and 128: its step time jumps to 3.6 times" in decided.said


def test_a_known_capture_limit_is_used_up_to_the_last_token(decide: Any) -> None:
    """With CUDA graphs up to 512 tokens K=5 reaches batch size 85, and no K passes 512 tokens in flight."""
    decided = decide(QWEN_MOE, "--max-cudagraph-capture-size", 512)
    assert decided.k_at(85) == 5
    assert all(b * (decided.k_at(b) + 1) <= 512 for b in range(1, 129))
    assert decided.k_at(103) == 3


def test_ties_go_to_the_smaller_k_and_the_fixed_k_is_always_shown(decide: Any) -> None:
    """At batch size 2 K=3 is within 2 % of K=5 and taken; fixed K=3 stands beside the table with its worst loss."""
    decided = decide(QWEN_MOE)
    assert decided.k_at(2) == 3
    assert decided.profile.decision.fixed_k == 3
    assert decided.profile.decision.fixed_worst_loss == pytest.approx(0.097, abs=0.01)
    assert "Fixed K 3 saves" in decided.said


def test_what_fixed_k_engines_cannot_say_is_said(decide: Any) -> None:
    """Where each K was an engine of its own, the verdict says that the K=0 tax and the table's graphs are missing."""
    decided = decide(QWEN_DENSE)
    assert "the K=0 tax is not in these numbers" in decided.said
    assert "the table's CUDA-graph mode is not in these numbers" in decided.said
    assert decided.profile.k0_tax == ()


def test_a_dense_model_gets_its_falling_table(decide: Any) -> None:
    """K falls from 5 over 3 to 1, K=5 ends before 32, and both boundaries are said to lie between measurements."""
    decided = decide(QWEN_DENSE)
    assert decided.profile.decision.verdict is Verdict.TABLE
    assert [decided.k_at(b) for b in (1, 16, 32, 64, 128, 256)] == [5, 5, 3, 3, 1, 1]
    assert 5 not in {decided.k_at(b) for b in range(32, 257)}
    assert "not measured between 16 and 32" in decided.said
    assert "not measured between 64 and 128" in decided.said


def test_luck_of_the_text_ranks_no_k(decide: Any) -> None:
    """A lucky text makes K=5 look 28 % better at batch size 1: AL is pooled, and the small batches are undecided."""
    decided = decide(LUCKY)
    lucky = next(e for e in decided.profile.cells if e.cell.batch_size == 1 and e.cell.k == 5)
    assert lucky.tpot_s.value * 1e3 > 3.384631 * 1.05
    assert "at batch sizes 1, 2, 4 the best K is undecided on one run" in decided.said
    assert "97% of the drafts were accepted" in decided.said


def test_offered_requests_that_did_not_run_make_no_range(cli: Any, tmp_path: Path) -> None:
    """Of 512 offered 63 ran: no range reaches up to 512, and the row is left out by name."""
    running = GRIDS.parent / "offered_vs_running.csv"
    run = tmp_path / "both"
    arms = ("--arm", "static", "--k0", "no_spec", "--where", "model=super")
    assert cli("import", GRIDS / f"{LUCKY}.csv", running, *arms, "-o", run).code == 0
    said = cli("fit", run)
    assert formats.read(formats.PROFILE, run / "profile.json").decision.max_num_seqs == 128
    assert "left out 5 of batch size 512" in " ".join(said.out.split())


def test_a_useless_drafter_is_removed_not_set_to_zero(cli: Any, decide: Any) -> None:
    """Where K=0 is best everywhere the flag is left out; no table of zeros keeps the drafter loaded."""
    decided = decide(csv_grid(*((b, k, 10 + 3 * k + b / 10) for b in (1, 4, 16) for k in (0, 1, 2))))
    assert (decided.code, decided.profile.decision.verdict) == (4, Verdict.OFF)
    said = cli("emit-config", decided.path)
    assert "--speculative-config" not in said.out
    assert "Leave --speculative-config out" in said.err


def test_a_table_of_zeros_is_not_off(decide: Any) -> None:
    """K=0 in a table's engine stands for the table and never for an engine without speculation."""
    grid = csv_grid(*((b, k, 10 - k + b / 10) for b in (1, 4, 16) for k in (0, 1, 2)))
    decided = decide(grid, declared=("--arm", "dsd", "--k0", "dsd"))
    assert decided.profile.decision.fixed_gain is None
    assert "speculation off was not tested: K=0 ran in the table's engine" in decided.said


def test_tpot_decides_and_itl_does_not(decide: Any) -> None:
    """K=8 has the better TPOT and seven times the ITL: K=8 is advised."""
    decided = decide("vllm_pr48892_mtp1_mtp8_gsm8k_c64")
    assert decided.profile.decision.fixed_k == 8
    assert "K=8 is the largest K tried" in decided.said


def test_tokens_decide_and_acceptance_does_not(decide: Any) -> None:
    """A higher acceptance rate at K=5 ranks nothing: K=7 has more tokens a second up to 2, and K=5 from 4 on."""
    decided = decide(DGX_SPARK)
    assert [decided.k_at(b) for b in (1, 2, 4, 6)] == [7, 7, 5, 5]
    assert decided.profile.decision.max_num_seqs == 6


@pytest.mark.parametrize(
    ("grid", "stated", "worst", "verdict"),
    [
        # 64 to 127 are not carried at K=5, since its step time jumps there.
        (QWEN_MOE, "[[1,3,3],[4,64,5],[65,128,3]]", "K=3 loses 9.7%", Verdict.FIXED),
        ("rl_qwen3_30ba3b_swe_gb200", "[[1,31,3],[32,63,5],[64,128,2]]", "K=3 loses 3.1%", Verdict.FIXED),
        (QWEN_DENSE, "[[1,31,5],[32,127,3],[128,256,1]]", "K=3 loses 25.9%", Verdict.TABLE),
        (SUPER, "[[1,127,3],[128,128,1]]", "K=3 loses 3.8%", Verdict.FIXED),
        ("rl_nemotron_super_fp8_swe_gb200", "[[1,63,3],[64,127,2],[128,128,1]]", "K=3 loses 2.0%", Verdict.FIXED),
        (LUCKY, "[[1,31,5],[32,127,3],[128,512,1]]", "K=5 loses 13.0%", Verdict.FIXED),
        ("sglang_qwen3_235b_eagle_autospec", "[[1,1,4],[2,15,2],[16,63,3],[64,64,2]]", "K=3 loses 3.7%", Verdict.FIXED),
        (DGX_SPARK, "[[1,3,7],[4,6,5]]", "K=5 loses 6.0%", Verdict.FIXED),
    ],
)
def test_what_the_bare_numbers_say_is_shown(decide: Any, grid: str, stated: str, worst: str, verdict: Verdict) -> None:
    """Beside the verdict stands how a reader who takes nothing for luck reads the grid, and what a fixed K loses."""
    decided = decide(grid)
    assert decided.profile.decision.verdict is verdict
    assert f"these numbers say {stated}, and that fixed {worst} at worst" in decided.said


def test_a_gain_too_small_for_a_table_is_named(decide: Any) -> None:
    """Where a fixed K is advised although a table looks better, the reason says by how much, and what it would take."""
    assert "a table would save 3.6% [-0.6%, 7.8%] more, and 5% are needed" in decide(DGX_SPARK).said


def test_a_later_optimum_in_k_is_found(decide: Any) -> None:
    """At batch size 128 K=1 beats 2, 3 and 5, and 5 beats 2: nothing assumes one hill."""
    decided = decide(LUCKY)
    assert decided.k_at(128) == 1
    assert [decided.k_at(b) for b in (1, 16, 32)] == [5, 5, 3]


def test_where_verification_stops_being_free_is_said(cli: Any, decide: Any) -> None:
    """Critical BS*K, the datasheet's number beside it, and where each K stops paying, in 80 columns; `show` as well."""
    decided = decide(QWEN_DENSE)
    assert "Critical BS*K no bend" in decided.said
    assert "the datasheet of GB200 x2 puts it at 312" in decided.said
    assert [crossover.k for crossover in decided.profile.crossovers] == [1, 2, 3, 5]
    assert "K=2 at B=" in decided.said
    assert max(map(len, decided.shown.splitlines())) <= 80
    assert cli("show", decided.path).out == decided.shown


def test_a_bend_comes_with_its_interval(decide: Any) -> None:
    """Where step time bends, the tokens in flight at which it does are given with an interval around the truth."""
    steps = {(b, k): 10 + 0.01 * b + 0.3 * k + 0.05 * max(0, b * (k + 1) - 100) for b in SIZES for k in range(4)}
    rows = "".join(f"{b},{k},{step_ms:.4f},{1 + 0.6 * k if k else ''}\n" for (b, k), step_ms in steps.items())
    text = f"batch_size,k,step_ms,acceptance_length\n{rows}"
    critical = decide(text, declared=("--arm", "dsd", "--k0", "no_spec")).profile.critical
    assert critical
    assert critical.tokens
    assert critical.tokens.low <= 110
    assert critical.tokens.high >= 90


@pytest.mark.parametrize("grid", [SUPER, "rl_nemotron_super_fp8_swe_gb200"])
def test_one_slow_cell_is_named_and_pulls_nothing(decide: Any, grid: str) -> None:
    """(4, K=2) takes twice what its neighbours say: it is named, left as it is, and K=3 runs there all the same."""
    decided = decide(grid)
    assert "B=4 K=2 is an outlier" in decided.said
    (slow,) = [e for e in decided.profile.cells if (e.cell.batch_size, e.cell.k) == (4, 2)]
    assert slow.step_s
    assert slow.step_s.value * 1e3 > 17
    assert decided.k_at(4) == 3


@pytest.mark.parametrize(
    ("grid", "ks", "worst"),
    [
        ("rl_qwen3_30ba3b_swe_gb200", {3}, 0.031),
        ("rl_nemotron_super_fp8_swe_gb200", {3}, 0.02),
        ("sglang_qwen3_235b_eagle_autospec", {3, 4}, 0.04),
        ("strixhalo_qwen36_35b_a3b_mtp_c1", {2}, 0.01),
    ],
)
def test_ties_inside_the_noise_make_no_table(decide: Any, grid: str, ks: set[int], worst: float) -> None:
    """Where the best K flips by less than noise, one K is advised, with what it loses at worst."""
    decision = decide(grid).profile.decision
    assert decision.verdict is Verdict.FIXED
    assert decision.fixed_k in ks
    assert decision.fixed_worst_loss == pytest.approx(worst, abs=0.006)


def test_off_that_was_not_tested_is_said(decide: Any) -> None:
    """Without K=0 a K may be advised, but no gain over no speculation is claimed anywhere."""
    decided = decide("sglang_qwen3_235b_eagle_autospec")
    assert decided.code == 0
    assert "speculation off was not tested" in decided.profile.decision.reason
    assert decided.profile.decision.fixed_gain is decided.profile.decision.table_gain is None
    assert all(e.gain is None for e in decided.profile.cells)


def test_missing_cells_are_no_verdict(decide: Any) -> None:
    """Where K=1 to 3 never ran, K=5 is not called the best of what is there: cannot tell, and what to measure."""
    decided = decide("nemotron_super_bf16_10k1k_v028")
    assert (decided.code, decided.profile.decision.verdict) == (5, Verdict.UNCLEAR)
    assert "measure the missing cells" in decided.profile.decision.reason
    for batch_size in (1, 32, 128):
        assert f"at B={batch_size} K=1, K=2, K=3 was not measured: no best K is claimed there" in decided.said


@pytest.mark.parametrize(
    ("grid", "flags", "k"),
    [
        ("strixhalo_qwen36_35b_a3b_mtp_c1", (), 2),
        ("vllm_h100_llama31_8b_eagle_bs1", (), 2),
        ("vllm_h100_llama3_8b_eagle_bs1", (), 2),
        ("vllm_a100_llama31_8b_eagle_k1_short_vs_long", ("--where", "workload=short"), 1),
    ],
)
def test_one_batch_size_supports_no_table(cli: Any, decide: Any, grid: str, flags: tuple[str, ...], k: int) -> None:
    """From one batch size there is no table, but a fixed K; of tied ones the smallest."""
    decided = decide(grid, declared=("--arm", "static", "--k0", "no_spec", *flags))
    assert decided.profile.decision.table is None
    assert "one batch size (1) supports a fixed K, and no table" in decided.said
    assert json.loads(cli("emit-config", decided.path, "--format", "json").out)["num_speculative_tokens"] == k


def test_fixed_ks_are_compared_where_all_were_measured(decide: Any) -> None:
    """Ks with holes at unlike batch sizes have no comparable means: those measured at the same ones compete."""
    cells = {(b, k): 20 - 2 * k + b / 10 for b in (1, 4, 16) for k in (0, 1, 2, 3)}
    del cells[1, 3], cells[16, 2]
    assert decide(csv_grid(*((b, k, t) for (b, k), t in cells.items()))).profile.decision.fixed_k == 1


def test_a_grid_that_starts_late_says_so(decide: Any) -> None:
    """Batch sizes below the first measured get its K, and are said not to be measured."""
    grid = csv_grid(*((b, k, t) for b, *ts in ((8, 10, 5), (64, 10, 20)) for k, t in zip((0, 3), ts, strict=True)))
    decided = decide(grid)
    assert {decided.k_at(b) for b in range(1, 9)} == {3}
    assert "batch sizes 1 to 7 were not measured: they get what 8 gets" in decided.said


def test_nothing_is_advised_past_the_last_batch_size(cli: Any, decide: Any) -> None:
    """The table ends where the measurements end, and so does --max-num-seqs."""
    decided = decide(QWEN_DENSE)
    words = shlex.split(cli("emit-config", decided.path).out)
    assert words[words.index("--max-num-seqs") + 1] == "256"
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config["num_speculative_tokens_per_batch_size"][-1][1] == 256


def test_what_an_import_does_not_know_is_to_be_filled_in(cli: Any, decide: Any) -> None:
    """The pasted line has a placeholder for the model, and stderr names all that is missing and what the files say."""
    said = cli("emit-config", decide(QWEN_DENSE).path)
    assert shlex.split(said.out)[:3] == ["vllm", "serve", "MODEL"]
    assert "MODEL stands for the model (the import says 'Qwen3-32B (dense) TP2')" in said.err
    assert "lacks the method and the drafter's model (the import says 'EAGLE3 thinking speculator')" in said.err


def raw_tpot(grid: str) -> dict[int, dict[int, float]]:
    """Published seconds a token by K and batch size."""
    lines = [line for line in (GRIDS / f"{grid}.csv").read_text().splitlines() if not line.startswith("#")]
    found: dict[int, dict[int, float]] = {}
    for row in csv.DictReader(lines):
        batch_size = int(row["batch_size"])
        found.setdefault(int(row["k"]), {})[batch_size] = batch_size / float(row["output_tok_s"])
    return found


@pytest.mark.parametrize(
    "grid",
    [
        QWEN_MOE,
        QWEN_DENSE,
        "rl_qwen3_30ba3b_swe_gb200",
        SUPER,
        "rl_nemotron_super_fp8_swe_gb200",
        LUCKY,
        "sglang_qwen3_235b_eagle_autospec",
        DGX_SPARK,
    ],
)
def test_advice_does_not_lose_to_the_best_fixed_k(decide: Any, grid: str) -> None:
    """On the published numbers themselves, whatever is advised loses no more than 2 % to the best fixed K."""
    decision, tpot = decide(grid).profile.decision, raw_tpot(grid)
    sizes = sorted(tpot[decision.fixed_k])

    def mean(ks: list[int]) -> float:
        return sum(math.log(tpot[k][b]) for k, b in zip(ks, sizes, strict=True)) / len(sizes)

    table = decision.table
    advised = [table.k_at(b) for b in sizes] if decision.verdict is Verdict.TABLE else [decision.fixed_k] * len(sizes)
    best = min(mean([k] * len(sizes)) for k in tpot if k and len(tpot[k]) == len(sizes))
    assert mean(advised) - best <= 0.02


@pytest.mark.parametrize("grid", [QWEN_MOE, "rl_nemotron_super_fp8_swe_gb200", LUCKY])
def test_a_table_that_lost_when_it_was_deployed_is_not_advised(decide: Any, grid: str) -> None:
    """Tables from these grids were deployed and lost to a fixed K (1.90 to 2.00, 1.43 to 1.47, 24 % at 128)."""
    assert decide(grid).profile.decision.verdict is Verdict.FIXED


def test_a_gain_smaller_than_an_unseen_engine_costs_makes_no_table(decide: Any) -> None:
    """Fixed-K engines that differ by 4 % for sure make a table only if the table's own engine was measured."""
    rows = ((b, k, t) for b, *ts in ((1, 10, 7, 8), (8, 10, 7, 8), (64, 10, 9, 7)) for k, t in enumerate(ts))
    grid = csv_grid(*rows)
    seen = decide(grid, declared=("--arm", "dsd", "--k0", "no_spec")).profile.decision
    unseen = decide(grid).profile.decision
    assert seen.table_over_fixed
    assert 0.02 < seen.table_over_fixed.value < 0.05
    assert (seen.verdict, unseen.verdict) == (Verdict.TABLE, Verdict.FIXED)


CROSSING = csv_grid(
    *((b, k, t) for b, *ts in ((1, 20, 10), (8, 20, 12), (64, 25, 60)) for k, t in zip((0, 3), ts, strict=True))
)


def test_a_histogram_without_a_tail_needs_no_table(decide: Any, tmp_path: Path) -> None:
    """A deployment that never leaves a range has no use for the others: one K."""
    histogram = tmp_path / "running.csv"
    histogram.write_text("batch_size,seconds\n4,10\n6,30\n8,60\n")
    assert decide(CROSSING).profile.decision.verdict is Verdict.TABLE
    decided = decide(CROSSING, "--concurrency", histogram)
    assert (decided.profile.decision.verdict, decided.profile.decision.fixed_k) == (Verdict.FIXED, 3)
    assert "batch sizes count as in the histogram" in decided.said
    assert "of the weight lie 100% at K=3" in decided.said


def test_a_boundary_where_the_traffic_is_is_warned_of(decide: Any, tmp_path: Path) -> None:
    """One prefill beside the usual number of decodes would change K: it is said."""
    histogram = tmp_path / "running.csv"
    histogram.write_text("batch_size,seconds\n8,60\n9,40\n")
    grid = csv_grid(*((b, k, t) for b, *ts in ((8, 20, 10), (9, 20, 30)) for k, t in zip((0, 3), ts, strict=True)))
    decided = decide(grid, "--concurrency", histogram)
    assert "K changes just above 8, where most of the traffic is" in decided.said


def test_a_peak_leaves_out_what_never_happens(decide: Any) -> None:
    """Batch sizes above the peak count nothing."""
    decided = decide(CROSSING, "--peak", 8)
    assert decided.profile.decision.verdict is Verdict.FIXED
    assert "up to a batch size of 8" in decided.said


def test_goodput_prefers_what_keeps_the_limit(decide: Any) -> None:
    """A K within the limit is worth more than a smaller mean: only K=0 keeps 30 ms at 64."""
    rows = ((b, k, t) for b, *ts in ((32, 28, 20), (64, 29.5, 31)) for k, t in enumerate(ts))
    grid = csv_grid(*rows)
    assert decide(grid, "--goodput", "tpot:30").k_at(64) == 0
    assert decide(grid, "--goodput", "tpot:50").profile.decision.fixed_k == 1


def test_throughput_weighs_large_batches(decide: Any) -> None:
    """Where tokens count alike, a K that pays only in large batches wins over one that pays only in small ones."""
    rows = ((b, k, t) for b, *ts in ((1, 20, 10, 19), (8, 20, 12, 16), (64, 30, 31, 20)) for k, t in enumerate(ts))
    grid = csv_grid(*rows)
    assert decide(grid).profile.decision.fixed_k == 1
    assert decide(grid, "--objective", "throughput").profile.decision.fixed_k == 2


TAXED = """batch_size,k,arm,step_us,acceptance_length
1,0,no_spec,6317,
1,0,dsd,6585,
1,1,dsd,9000,1.8
2,0,no_spec,6015,
2,0,dsd,6778,
2,1,dsd,9900,1.8
"""
"""The times of `vllm_k0_sync_forward_rtx5090.csv` at K=0, with a K of its own beside."""


def test_k0_is_asked_of_both_engines(decide: Any) -> None:
    """K=0 in the table's engine and an engine without speculation are two arms: the difference is the tax."""
    decided = decide(TAXED, declared=())
    assert [tax.share.value for tax in decided.profile.k0_tax] == pytest.approx([0.042, 0.127], abs=0.001)
    assert "Tax of K=0 over no speculation, in the table's engine" in decided.said
    assert decided.k_at(2) == 1


def test_a_cap_on_drafts_makes_no_table(decide: Any) -> None:
    """Where TPOT does not move with K, K is a cap: the smallest K, no table, whatever cell is the best by a hair."""
    tpot = {1: (4.4, 4.39, 4.39), 16: (5.85, 5.85, 5.82)}
    rows = ((b, k, t) for b, ts in tpot.items() for k, t in zip((5, 12, 32), ts, strict=True))
    decided = decide(csv_grid(*rows))
    assert (decided.profile.decision.verdict, decided.profile.decision.fixed_k) == (Verdict.FIXED, 5)
    assert "TPOT does not move with K" in decided.said


def test_boundaries_inside_the_scatter_of_repeats_are_none(decide: Any) -> None:
    """Repeats that scatter by 30 % leave a best K that differs by 6 to 20 % to luck; without scatter it is a table."""

    def grid(scatter: float) -> str:
        means = {(1, 0): 20.0, (1, 1): 10.0, (1, 3): 9.4, (64, 0): 20.0, (64, 1): 10.0, (64, 3): 12.0}
        return csv_grid(*((b, k, t * s) for (b, k), t in means.items() for s in (1 - scatter, 1, 1 + scatter)))

    wild, calm = (decide(grid(scatter), declared=("--arm", "dsd", "--k0", "no_spec")) for scatter in (0.3, 0.001))
    assert (wild.profile.decision.verdict, calm.profile.decision.verdict) == (Verdict.FIXED, Verdict.TABLE)


def test_the_depth_of_a_run_is_said(decide: Any) -> None:
    """Step time and acceptance drift with depth: a grid says how long its outputs were, and that longer ones differ."""
    assert "outputs had 10000 tokens: step time and acceptance change with depth" in decide(LUCKY).said


def test_every_format_has_the_placeholder(cli: Any, decide: Any) -> None:
    """The file for --config is the same advice as the line, and as the JSON."""
    path = decide(QWEN_DENSE).path
    config = json.loads(cli("emit-config", path, "--format", "json").out)
    assert set(config) == {"num_speculative_tokens", "num_speculative_tokens_per_batch_size"}
    read = yaml.safe_load(cli("emit-config", path, "--format", "yaml").out)
    assert read == {"model": "MODEL", "max-num-seqs": 256, "speculative-config": config}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--goodput", "ttft:30"), "is no limit of TPOT"),
        (("--goodput", "tpot:fast"), "is no limit of TPOT"),
        (("--goodput", "tpot:1e-9"), "nothing measured keeps a TPOT of 1e-09 ms: the fastest has 10 ms"),
        (("--concurrency", "nowhere.csv"), "cannot be read"),
        (("--peak", "4096"), "was not measured"),
    ],
)
def test_aims_that_make_no_sense_are_refused(
    cli: Any, decide: Any, tmp_path: Path, flags: tuple[str, ...], complaint: str
) -> None:
    """A limit, histogram or peak that cannot be used is refused in one sentence."""
    decide(CROSSING)
    assert complaint in cli("fit", tmp_path / "run", *flags).refused(2)


@pytest.mark.parametrize(
    "text", ["batch_size,seconds\n0,3\n", "batch_size,seconds\n8,x\n", "batch_size,seconds\n8,0\n"]
)
def test_histograms_that_make_no_sense_are_refused(cli: Any, decide: Any, tmp_path: Path, text: str) -> None:
    """Impossible batch sizes, words for numbers and no weight at all are refused."""
    decide(CROSSING)
    histogram = tmp_path / "running.csv"
    histogram.write_text(text)
    assert str(histogram) in cli("fit", tmp_path / "run", "--concurrency", histogram).refused(2)
