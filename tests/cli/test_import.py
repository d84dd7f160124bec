"""What `dsd-tune import` reads, writes and refuses, on real files."""

import json
from pathlib import Path

import pytest
from importing import DATA, GRIDS, Said, bench_result, written

from dsd_tune.storage.published import load


@pytest.mark.parametrize("grid", ["rl_qwen3_30ba3b_openmath_gb200", "rl_nemotron_super_fp8_swe_gb200"])
def test_published_grid_becomes_a_run_directory(grid: str, run: Path) -> None:
    """A grid is kept cell by cell, and the last line is the command that goes on."""
    said = Said(GRIDS / f"{grid}.csv", "-o", run)
    rows = load(run).rows
    assert said.code == 0
    assert said.out == f"dsd-tune fit {run}\n"
    assert len(rows) == sum(line[:1].isdigit() for line in (GRIDS / f"{grid}.csv").read_text().splitlines())
    assert {row.cell.arm for row in rows} == {"no_spec", "static"}


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
