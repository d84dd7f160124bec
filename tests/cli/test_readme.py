"""The commands that the README tells people to type exist, with the flags it gives them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Cli

README = Path(__file__).parents[2] / "README.md"


def _commands() -> list[list[str]]:
    """The words of each `dsd-tune` line in a shell block, with continued lines joined."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("dsd-tune ")]


def test_the_readme_shows_the_whole_path() -> None:
    """Somebody who reads it meets each command of the path from measuring to pasting."""
    assert {"sweep", "import", "fit", "emit-config", "check"} <= {words[0] for words in _commands()}


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_every_flag_in_the_readme_exists(words: list[str], cli: Cli) -> None:
    """Each flag before `--` is in the help of its command."""
    ours = words[1 : words.index("--")] if "--" in words else words[1:]
    help_ = cli(words[0], "--help")
    for flag in (word for word in ours if word.startswith("-")):
        assert re.search(rf"(^|[\s,]){re.escape(flag)}\b", help_.out), flag


def test_the_check_in_the_readme_finds_no_error(cli: Cli) -> None:
    """The table that it shows as an example is one that vLLM obeys."""
    (words,) = (words for words in _commands() if words[0] == "check")
    assert cli(*words).code == 0
