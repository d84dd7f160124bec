"""A document as Markdown, for a pull request or an issue; pictures are links to files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dsd_tune.report.document import Code, Document, Grid, Pairs, Part, Picture, Points, Section


def markdown(document: Document, picture_folder: str | None) -> str:
    """The whole text; `picture_folder` is where pictures lie as PNG, as seen from it, None where there are none."""
    top = [f"# {_text(document.title)}", f"**{_text(document.answer)}**: {_text(document.reason)}"]
    sections = [block for section in document.sections for block in _section(section, picture_folder)]
    return "\n\n".join([*top, *sections, _text(document.origin)]) + "\n"


def _section(section: Section, picture_folder: str | None) -> Iterator[str]:
    blocks = [_part(part, picture_folder) for part in section.parts]
    if any(blocks):
        yield f"## {_text(section.title)}"
        yield from filter(None, blocks)


def _part(part: Part, picture_folder: str | None) -> str:
    match part:
        case Pairs():
            return _points(f"**{_text(label)}**: {_text(text)}" for label, text in part.rows)
        case Grid():
            head, rule = _row(part.head), _row(["---:"] * len(part.head))
            return "\n".join([head, rule, *(_row(map(_text, row)) for row in part.rows)])
        case Code():
            return _fenced(part.text)
        case Points():
            return _points(map(_text, part.sentences))
        case Picture():
            return _picture(part, picture_folder) if picture_folder is not None else ""


def _points(lines: Iterator[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _row(entries: Iterator[str] | list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(entries)} |"


def _fenced(text: str) -> str:
    """In a fence longer than any inside."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _picture(picture: Picture, folder: str) -> str:
    return f"![{picture.name}](<{folder}/{picture.name}.png>)\n\n{_text(picture.caption)}"


def _text(text: str) -> str:
    """On one line, with every character that Markdown or HTML would read as more than itself escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", " ".join(text.split()))
