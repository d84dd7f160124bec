import json
from pathlib import Path

import pytest

from dsd_tune.errors import UsageError
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage.prompts import load_prompts


def _file(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def test_prompts_are_named_by_id_or_by_place(tmp_path: Path) -> None:
    """A prompt has the id it was given, or else its number in the file."""
    path = _file(tmp_path, {"id": "a", "prompt": "One"}, {"prompt": "Two", "source": "chat"})
    assert load_prompts(path) == (Prompt("a", "One"), Prompt("2", "Two"))


def test_only_held_out_prompts_are_measured(tmp_path: Path) -> None:
    """Where a file says which prompts a drafter was trained on, those are left out."""
    path = _file(tmp_path, {"prompt": "Seen", "split": "train"}, {"id": "b", "prompt": "New", "split": "held_out"})
    assert load_prompts(path) == (Prompt("b", "New"),)


@pytest.mark.parametrize("separator", ["\u2028", "\u0085"], ids=["line", "next line"])
def test_a_prompt_may_hold_any_separator(tmp_path: Path, separator: str) -> None:
    """Only a newline ends a line; what else Unicode calls a line break is text."""
    (prompt,) = load_prompts(_file(tmp_path, {"prompt": f"One{separator}Two"}))
    assert prompt.text == f"One{separator}Two"


@pytest.mark.parametrize("row", [{"text": "One"}, {"prompt": " "}, {"prompt": 1}, ["One"]], ids=repr)
def test_a_line_without_a_prompt_is_named(tmp_path: Path, row: object) -> None:
    """A line that holds no text under `prompt` is refused with its number."""
    with pytest.raises(UsageError, match="line 2 has no"):
        load_prompts(_file(tmp_path, {"prompt": "One"}, row))


@pytest.mark.parametrize("rows", [[], [{"prompt": "Seen", "split": "train"}]], ids=["empty", "none held out"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, rows: list[object]) -> None:
    """A file that leaves nothing to measure is an error, not an empty sweep."""
    with pytest.raises(UsageError, match="holds no prompts"):
        load_prompts(_file(tmp_path, *rows))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    """A missing file, bytes that are no text and lines that are not JSON are refused with the path."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "words").write_text("Hello")
    for name, why in [("absent", "cannot be read"), ("bytes", "is no text"), ("words", "line 1 is not JSON")]:
        with pytest.raises(UsageError, match=f"{name},? {why}"):
            load_prompts(tmp_path / name)


@pytest.mark.parametrize("name", [[], {}, ["a"], {"a": 1}], ids=repr)
def test_an_id_is_a_string_or_a_number(tmp_path: Path, name: object) -> None:
    """An id that could name nothing is refused with its line."""
    with pytest.raises(UsageError, match="line 1 has an id"):
        load_prompts(_file(tmp_path, {"id": name, "prompt": "One"}))


def test_nesting_without_end_is_no_json(tmp_path: Path) -> None:
    """A line too deeply nested to be read is refused like any other that is not JSON."""
    path = tmp_path / "deep.jsonl"
    path.write_text('{"prompt": ' + "[" * 100_000)
    with pytest.raises(UsageError, match="line 1 is not JSON"):
        load_prompts(path)
