from pathlib import Path

import pytest

from dsd_tune.errors import UsageError
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage.prompts import load_prompts


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_prompts_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Each line is a prompt; a line without an id is known by its number."""
    path = _file(tmp_path, '{"id": "a", "prompt": "Grüße?"}', '{"prompt": "Second.", "note": 1}')
    assert load_prompts(path) == (Prompt("a", "Grüße?"), Prompt("2", "Second."))


def test_an_empty_id_is_none(tmp_path: Path) -> None:
    """A line whose id is empty or null is known by its number, too."""
    path = _file(tmp_path, '{"prompt": "x", "id": ""}', '{"prompt": "y", "id": null}', '{"prompt": "z", "id": 0}')
    assert [prompt.id for prompt in load_prompts(path)] == ["1", "2", "0"]


def test_only_held_out_prompts_are_measured(tmp_path: Path) -> None:
    """Where lines name a split, those a drafter may have been trained on are left out, and those that name none."""
    path = _file(
        tmp_path,
        '{"id": "t", "prompt": "Trained.", "split": "train"}',
        '{"id": "h", "prompt": "Kept back.", "split": "held_out"}',
        '{"id": "n", "prompt": "Nobody knows."}',
    )
    assert [prompt.id for prompt in load_prompts(path)] == ["h"]


def test_empty_lines_are_no_prompts(tmp_path: Path) -> None:
    """Blank lines are passed over."""
    assert len(load_prompts(_file(tmp_path, "", '{"prompt": "One."}', "   ", ""))) == 1


def test_line_separators_inside_a_prompt_do_not_end_its_line(tmp_path: Path) -> None:
    """A prompt may hold any character that JSON leaves bare, such as U+2028, without falling apart."""
    path = _file(tmp_path, '{"prompt": "one\u2028two\u0085three"}')
    assert load_prompts(path) == (Prompt("1", "one\u2028two\u0085three"),)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "holds no prompts"),
        (["", " "], "holds no prompts"),
        (['{"prompt": "x", "split": "train"}'], "holds no prompts"),
        (['{"prompt": "x"}', "{prompt}"], "line 2 is not JSON"),
        (['{"text": "x"}'], 'line 1 has no "prompt" text'),
        (['{"prompt": ""}'], 'line 1 has no "prompt" text'),
        (['{"prompt": 7}'], 'line 1 has no "prompt" text'),
        (['"just text"'], 'line 1 has no "prompt" text'),
        (['{"prompt": "x", "id": "a"}', '{"prompt": "y", "id": "a"}'], "two prompts with id a"),
    ],
    ids=str,
)
def test_files_without_usable_prompts_are_refused(tmp_path: Path, lines: list[str], complaint: str) -> None:
    """An empty file, a broken line or a line without text is refused, and the line is named."""
    with pytest.raises(UsageError, match=complaint):
        load_prompts(_file(tmp_path, *lines))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A path that leads nowhere is refused by name."""
    with pytest.raises(UsageError, match=r"nowhere\.jsonl cannot be read"):
        load_prompts(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"PK\x03\x04\x80"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, data: bytes) -> None:
    """Bytes that are no UTF-8 are refused, and a folder is."""
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(data)
    for refused, why in ((path, "is no text"), (tmp_path, "cannot be read: Is a directory")):
        with pytest.raises(UsageError, match=why):
            load_prompts(refused)
