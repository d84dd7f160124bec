"""The testbed on this machine: converted once, healed when damaged, and its drafter is accepted by vLLM."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.testbed import prepare as module
from dsd_tune.testbed.prepare import Testbed, prepare

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache directory of its own for this module, empty at first."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("cache")
        patch.setenv("DSD_TUNE_CACHE", str(directory))
        yield directory


def _prepare() -> tuple[Testbed, list[str]]:
    said: list[str] = []
    return prepare(said.append), said


def test_second_call_converts_nothing_and_takes_seconds(cache: Path) -> None:
    """The first call converts and says so; the second finds everything in place, a tenth of the time later."""
    began = time.monotonic()
    testbed, said = _prepare()
    first = time.monotonic() - began
    assert len(said) == 1
    assert testbed.target.is_relative_to(cache)
    began = time.monotonic()
    again, said = _prepare()
    assert (again, said) == (testbed, [])
    assert time.monotonic() - began < first / 10


def test_truncated_weights_heal(cache: Path) -> None:
    """A target whose weights were cut short is converted again, and its digest is right."""
    testbed, _ = _prepare()
    weights = testbed.target / "model.safetensors"
    os.truncate(weights, 1000)
    healed, said = _prepare()
    assert len(said) == 1
    assert module.weights_digest(healed.target / "model.safetensors") == module.TARGET_DIGEST


def test_removed_drafter_heals_without_a_conversion(cache: Path) -> None:
    """A drafter whose weights are gone is copied again; the target is not touched."""
    testbed, _ = _prepare()
    (testbed.eagle / "model.safetensors").unlink()
    healed, said = _prepare()
    assert said == []
    assert (healed.eagle / "model.safetensors").stat().st_size > 8_000_000


def test_missing_package_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the package that holds the weights, the error names it and says what to install."""
    monkeypatch.setenv("DSD_TUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_NEEDED", ("torch", "no_such_package_at_all"))
    with pytest.raises(EnvironmentUnfit, match=r"no_such_package_at_all.*dsd-tune\[cpu\]"):
        _prepare()


def test_chat_template_ends_where_the_answer_begins(cache: Path) -> None:
    """The converted tokenizer has the chat template, and the answer ends at the token the model stops at."""
    from transformers import AutoTokenizer

    testbed, _ = _prepare()
    tokenizer = AutoTokenizer.from_pretrained(testbed.target)
    messages = [{"role": "user", "content": "Hello"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>assistant\n")
    assert tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id) == "<|im_end|>"
