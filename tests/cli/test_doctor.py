import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from trees import a_vllm

from dsd_tune.records.release import Release
from dsd_tune.records.trait import Trait, traits_of

CONFIG = (
    '{"method":"eagle3","model":"d","num_speculative_tokens":3,'
    '"num_speculative_tokens_per_batch_size":[[1,32,3],[33,64,1],[65,256,0]]}'
)
METRICS = """\
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 2.0
vllm:spec_decode_num_drafts_total{engine="0"} 1000.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 2500.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 900.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 600.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 200.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 100.0
"""


def codes(found: dict[str, Any]) -> list[str]:
    """What was found, worst first."""
    return [finding["code"] for finding in found["findings"]]


def examine(cli: Any, *words: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of an examination."""
    said = cli("doctor", "--json", *words)
    return said.code, json.loads(said.out)


@pytest.mark.parametrize(
    ("minor", "errors"),
    [
        (23, {"release-without-tables"}),
        (24, {"hybrid-stale-state", "data-parallel-deadlock"}),
        (25, {"hybrid-stale-state", "data-parallel-deadlock", "drafter-graphs"}),
        (31, {"hybrid-stale-state", "data-parallel-drops-table", "drafter-graphs"}),
        (33, {"data-parallel-drops-table"}),
    ],
)
def test_finds_for_a_release_what_it_has(cli: Any, tmp_path: Path, minor: int, errors: set[str]) -> None:
    """The same flags meet other obstacles in other releases, known from their files."""
    a_vllm(tmp_path, traits_of(Release(0, minor)), f"0.{minor}.0")
    flags = ["--model", "org/Qwen3-Next-80B", "--max-num-seqs", "256", "-dp", "2"]
    code, found = examine(cli, "--vllm-path", tmp_path, "--speculative-config", CONFIG, "--", *flags)
    assert code == 3
    assert {finding["code"] for finding in found["findings"] if finding["severity"] == "error"} == errors
    assert found["vllm"]["traits"]["hybrid-state"] == (minor >= 32)


def test_a_patched_vllm_is_believed(cli: Any, tmp_path: Path) -> None:
    """A scheduler that ignores the table is caught whatever its version says, and the lookup is the fixed K it runs."""
    a_vllm(tmp_path, set(Trait) - {Trait.LOOKUP})
    code, found = examine(cli, "--vllm-path", tmp_path, "--speculative-config", CONFIG, "--", "--max-num-seqs", "256")
    assert (code, codes(found)[:2]) == (3, ["table-not-looked-up", "vllm-unlike-release"])
    assert [(span["first"], span["last"], span["k"]) for span in found["planned"]["lookup"]] == [(1, 256, 3)]


def test_without_a_plan_the_vllm_is_shown(cli: Any, tmp_path: Path) -> None:
    """With no flags there is a line for each trait, a line for the machine, and a count; all within 80 columns."""
    a_vllm(tmp_path, traits_of(Release(0, 32)), "0.32.0")
    said = cli("doctor", "--vllm-path", tmp_path)
    lines = said.out.splitlines()
    assert said.code == 0
    assert lines[0].startswith("vLLM 0.32.0, in ")
    assert [line.split()[0] for line in lines[1 : len(Trait) + 1]] == [
        "yes" if trait.since <= Release(0, 32) else "no" for trait in Trait
    ]
    assert max(map(len, lines[1:])) <= 80
    assert lines[-1] == "nothing found"


def test_the_environment_chooses_the_runner(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own variable counts, and what stands before `vllm serve` counts more."""
    a_vllm(tmp_path, Trait)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    asked = ["--vllm-path", tmp_path, "--speculative-config", CONFIG, "--"]
    assert examine(cli, *asked, "vllm", "serve", "m")[1]["planned"]["model_runner"] == "v1"
    words = ["VLLM_USE_V2_MODEL_RUNNER=1", "vllm", "serve", "m"]
    assert examine(cli, *asked, *words)[1]["planned"]["model_runner"] == "v2"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--vllm-path", "none"], "There is no vLLM in none"),
        (["--url", "localhost:8000"], "no address of a server"),
        (["--url", "http://h", "--vllm-path", "x"], "two patients"),
        (["--vllm-path", "TREE", "--model", "m"], "no speculative config"),
        (["--vllm-path", "TREE", "--speculative-config", "{"], "not JSON"),
        (["--vllm-path", "TREE", "--speculative-config", CONFIG, "--", "--max-num-seqs", "x"], "no whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_input_is_a_usage_error(cli: Any, tmp_path: Path, words: list[str], hint: str) -> None:
    """What cannot be read ends with exit code 2 and one sentence."""
    a_vllm(tmp_path, Trait)
    assert hint in cli("doctor", *(str(tmp_path) if word == "TREE" else word for word in words)).refused(2)


class Answers(BaseHTTPRequestHandler):
    """A server that answers with `pages`."""

    pages: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        """One page, or none."""
        self.send_response(200 if self.path in self.pages else 404)
        self.end_headers()
        self.wfile.write(self.pages.get(self.path, "").encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that answers like vLLM."""
    models = {"data": [{"id": "m", "max_model_len": 4096}]}
    pages = {"/version": '{"version": "0.33.0"}', "/metrics": METRICS, "/v1/models": json.dumps(models)}
    monkeypatch.setattr(Answers, "pages", pages)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def test_a_running_server_is_asked(cli: Any, server: str) -> None:
    """Version, models, load and drafts come from the server, summed over its engines."""
    code, found = examine(cli, "--url", f"{server}/")
    asked = found["server"]
    assert (code, codes(found)) == (0, ["server-shorter-drafts"])
    assert (asked["version"], asked["models"], asked["max_model_len"]) == ("0.33.0", ["m"], 4096)
    assert (asked["running"], asked["waiting"], asked["k_max"]) == (4, 2, 3)
    assert (asked["drafts"], asked["draft_tokens"]) == (1000, 2500)
    assert "1000 drafts so far, 2.50 tokens each" in cli("doctor", "--url", server).out


def test_a_server_is_compared_with_its_config(cli: Any, server: str) -> None:
    """Another K_max than the config's is an error, and the config is judged by the server's version."""
    other = CONFIG.replace('"num_speculative_tokens":3', '"num_speculative_tokens":5')
    code, found = examine(cli, "--url", server, "--speculative-config", other, "--", "--max-num-seqs", "256")
    assert code == 3
    assert codes(found)[0] == "server-other-k-max"
    assert "k-max-unused" in codes(found)


def test_a_server_that_guards_its_models_is_read_all_the_same(cli: Any, server: str) -> None:
    """Where /v1/models asks for a key, the rest is still told."""
    del Answers.pages["/v1/models"]
    assert examine(cli, "--url", server)[1]["server"]["models"] == []


@pytest.mark.parametrize(
    ("page", "content", "hint"),
    [
        ("/version", None, "/version does not answer"),
        ("/version", "<html>", "answers no JSON"),
        ("/version", "[]", "no JSON object"),
        ("/version", '{"version": "latest"}', "is no version of vLLM"),
        ("/metrics", "python_gc 1.0", "no load of vLLM"),
    ],
)
def test_what_is_no_vllm_server_is_unfit(cli: Any, server: str, page: str, content: str | None, hint: str) -> None:
    """Another server, or none, ends with exit code 3 and one sentence."""
    if content is None:
        del Answers.pages[page]
    else:
        Answers.pages[page] = content
    assert hint in cli("doctor", "--url", server).refused(3)
