"""How `vllm bench serve` is called: a program in its place writes down what it was given."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsd_tune.engines import vllm_bench
from dsd_tune.engines.vllm_bench import LoadOrder, bench
from dsd_tune.errors import EngineFailed

PROGRAM = """#!{python}
import json, sys
from urllib.parse import urlsplit
from urllib.request import proxy_bypass
words = sys.argv
given = dict(zip(words, words[1:]))
direct = [host for host in (urlsplit(given["--base-url"]).hostname, "mirror", "elsewhere") if proxy_bypass(host)]
with open(given["--result-dir"] + "/" + given["--result-filename"], "w") as file:
    json.dump({{"words": words[1:], "body": json.loads(given["--extra-body"]), "direct": direct}}, file)
"""

ORDER = LoadOrder(
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


def test_a_long_load_may_take_long() -> None:
    """4,000 s at 20 ms a token are 200,000 tokens in a row; a server that takes seconds for each gets its time too."""
    waves = 1563
    assert replace(ORDER, requests=4 * waves).limit_s > 10 * 4000
    assert ORDER.limit_s > 3600 + 2 * 2 * 128


def test_a_load_that_hangs_is_given_up(tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what was asked, how long that was waited for, and what would take less."""
    program.write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(vllm_bench, "PATIENCE_S", 0.05)
    monkeypatch.setattr(vllm_bench, "SLOWEST_S", 0.0)
    with pytest.raises(EngineFailed, match=r"more than 0 s for 8 requests of up to 128 tokens.*--duration"):
        bench(URL, ORDER, tmp_path / "result.json")


def test_the_server_is_asked_for_the_name_of_its_model(tmp_path: Path) -> None:
    """vLLM's client asks where it is told none; the path would be wrong under `--served-model-name`."""
    words = bench(URL, ORDER, tmp_path / "result.json")["words"]
    assert not {"--model", "--served-model-name"} & set(words)


@pytest.mark.parametrize(
    ("url", "name", "value", "direct"),
    [
        (URL, "NO_PROXY", "", ["127.0.0.1"]),
        (URL, "NO_PROXY", "mirror", ["127.0.0.1", "mirror"]),
        ("http://[::1]:8000", "no_proxy", "mirror", ["::1", "mirror"]),
        ("http://gpu:8000", "no_proxy", "*", ["gpu", "mirror", "elsewhere"]),
    ],
)
def test_a_server_is_reached_past_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, name: str, value: str, direct: list[str]
) -> None:
    """The host of the server joins those that the environment excepts already; vLLM's client asks the same question."""
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv(name, value)
    assert bench(url, ORDER, tmp_path / "result.json")["direct"] == direct
