"""The commands that documents tell people to type."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SET = re.compile(r"[A-Z_]+=\S*")
_TOLD_BY_A_PROGRAM = re.compile(r"^[\w-]+: ", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """One line of a shell block, continued lines joined: its words without comments and variables."""

    document: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: {shlex.join(self.words)}"

    @property
    def program(self) -> str:
        """What is started."""
        return self.words[0]


def documents() -> list[Path]:
    """Everything that users read in the repository."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *(ROOT / folder / "README.md" for folder in ("profiles", "benchmarks")),
        *sorted((ROOT / "dsd_tune").rglob("*.md")),
    ]


def commands(document: Path) -> list[Command]:
    """In the order in which they are to be typed. A block without a language is a shell's unless a program wrote it."""
    found = []
    for _, language, text in _BLOCK.findall(document.read_text(encoding="utf-8")):
        if language == "sh" or (not language and not _TOLD_BY_A_PROGRAM.match(text)):
            found += [words for line in text.replace("\\\n", " ").splitlines() if (words := _words(line))]
    return [Command(str(document.relative_to(ROOT)), words) for words in found]


def _words(line: str) -> tuple[str, ...]:
    words = shlex.split(line, comments=True)
    while words and _SET.fullmatch(words[0]):
        words.pop(0)
    return tuple(words)
