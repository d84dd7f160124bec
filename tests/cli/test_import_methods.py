"""Methods that take K for a cap, and counters of mixed Ks: `dsd-tune import` on real files."""

from pathlib import Path

import pytest
from importing import DATA, GRIDS, Said, written

from dsd_tune.storage.published import load


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
