"""How `vllm bench serve` is called: a program in its place writes down what it was given."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsd_tune.engines import vllm_bench
from dsd_tune.engines.vllm_bench import LoadOrder, bench

PROGRAM = """#!{python}
import json, sys
words = sys.argv
given = dict(zip(words, words[1:]))
with open(given["--result-dir"] + "/" + given["--result-filename"], "w") as file:
    json.dump({{"words": words[1:], "body": json.loads(given["--extra-body"])}}, file)
"""

ORDER = LoadOrder(
    model=None,
    tokenizer="model",
    prompts=Path("prompts.jsonl"),
    concurrency=4,
    requests=8,
    output_tokens=128,
    temperature=0.0,
    chat=True,
)
URL = "http://127.0.0.1:8011"


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It stands where the `vllm` command would."""
    path = tmp_path / "vllm"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setattr(vllm_bench, "vllm_command", lambda: path)
    return path


def test_a_request_is_the_sweeps(tmp_path: Path) -> None:
    """The model's own penalty counts, and a template brings all special tokens; without one the server adds them."""
    plain = replace(ORDER, chat=False)
    talking, said = (bench(URL, order, tmp_path / "result.json") for order in (ORDER, plain))
    assert talking["body"] == {"repetition_penalty": None, "add_special_tokens": False}
    assert said["body"] == {"repetition_penalty": None}
    assert "--skip-chat-template" in said["words"]
    assert "--skip-chat-template" not in talking["words"]
