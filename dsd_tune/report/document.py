"""What a report says, before it is a page or a text: sections made of a few kinds of parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels and what there is to say of each."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError(f"every row needs {len(self.head)} entries")


@dataclass(frozen=True, slots=True)
class Code:
    """Text to paste as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """Sentences that stand for themselves."""

    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure, drawn when it is needed; `name` is that of its file, `caption` tells how to read it."""

    name: str
    caption: str
    draw: Callable[[], Figure]


Part: TypeAlias = Pairs | Grid | Code | Points | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading; a folded one is opened by whoever wants it."""

    title: str
    parts: tuple[Part, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report: the answer and its reason first, then the sections; `caution` is one that nobody may miss."""

    title: str
    answer: str
    reason: str
    caution: Section | None
    sections: tuple[Section, ...]
    origin: str

    def pictures(self) -> list[Picture]:
        """In the order in which they are shown."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Picture)]
