"""Tables that win in a sweep and lose in production, for reasons that can be seen before anything is started."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from builders import a_decided_profile

from dsd_tune.records.table import Table
from dsd_tune.storage import formats


@pytest.fixture
def line(cli: Any, tmp_path: Path) -> list[str]:
    """The words that `emit-config` prints for a table up to batch size 16."""
    profile = a_decided_profile(table=Table.from_dense([2] * 4 + [1] * 12), method="eagle")
    formats.write(formats.PROFILE, tmp_path / "profile.json", profile)
    return shlex.split(cli("emit-config", tmp_path / "profile.json").out)


def _found(cli: Any, words: list[str]) -> tuple[int, dict[str, str]]:
    said = cli("check", "--vllm-version", "0.32", "--json", "--", *words)
    return said.code, {finding["code"]: finding["reason"] for finding in json.loads(said.out)["findings"]}


def test_data_parallelism_that_drops_the_table_is_an_error(cli: Any, line: list[str]) -> None:
    """The emitted line with two ranks more: `check` ends with 1 and names the size; without them it finds no error."""
    assert _found(cli, line)[0] == 0
    code, found = _found(cli, [*line, "--data-parallel-size", "2"])
    assert code == 1
    assert "data_parallel_size 2" in found["data-parallel-drops-table"]


@pytest.mark.usefixtures("line")
def test_data_parallelism_gets_no_table(cli: Any, tmp_path: Path) -> None:
    """`emit-config` for two ranks gives none, and tells scripts by its exit code."""
    said = cli("emit-config", tmp_path / "profile.json", "--data-parallel-size", 2)
    assert said.code != 0
    assert "num_speculative_tokens_per_batch_size" not in said.out


def test_fewer_places_than_the_table_has_are_named(cli: Any, line: list[str]) -> None:
    """With --max-num-seqs 8 the ranges above are never used: a warning with both numbers."""
    line[line.index("--max-num-seqs") + 1] = "8"
    found = _found(cli, line)[1]
    assert "max_num_seqs 8" in found["range-beyond"]


def test_a_first_range_without_drafts_is_noted(cli: Any, line: list[str]) -> None:
    """Legal, and right for some models: a note, which is no error."""
    config = json.loads(line[line.index("--speculative-config") + 1])
    config["num_speculative_tokens_per_batch_size"] = [[1, 4, 0], [5, 16, 1]]
    line[line.index("--speculative-config") + 1] = json.dumps(config)
    code, found = _found(cli, line)
    assert code == 0
    assert "K is 0 at batch sizes 1-4 and above 0 only for larger batches" in found["zero-first"]
