"""A document as one HTML page that asks nobody for anything: style, script and pictures are inside."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from importlib.resources import files

from dsd_tune.report.document import Code, Document, Grid, Pairs, Part, Picture, Points, Section
from dsd_tune.report.html_text import Html, element, joined, void
from dsd_tune.report.plots.saved import svg


def page(document: Document) -> str:
    """The whole page. Its own policy lets the browser load nothing and run no other script."""
    style, script = _resource("page.css"), _resource("page.js")
    head = element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("link", rel="icon", href="data:,"),
        element("title", document.title),
        element("style", style),
    )
    body = element(
        "body",
        element(
            "main", _top(document), *(_section(section, document) for section in document.sections), _foot(document)
        ),
    )
    return f"<!doctype html>\n{element('html', head, joined(body, element('script', script)), lang='en')}\n"


def _resource(name: str) -> Html:
    """A file that lies beside this one, with code of ours."""
    return Html(files("dsd_tune.report").joinpath(name).read_text(encoding="utf-8"))


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _top(document: Document) -> Html:
    return element(
        "header",
        element("p", document.title, class_="subject"),
        element("h1", _capital(document.answer)),
        element("p", _capital(document.reason)),
        *([element("p", element("a", document.caution.title, href="#caution"))] if document.caution else []),
    )


def _foot(document: Document) -> Html:
    return element("footer", document.origin)


def _section(section: Section, document: Document) -> Html:
    pictures = [_picture(part) for part in section.parts if isinstance(part, Picture)]
    shown = [_part(part) for part in section.parts if not isinstance(part, Picture)]
    if pictures:
        shown.insert(0, element("div", *pictures, class_="pictures"))
    if section.folded:
        return element("details", element("summary", section.title), *shown)
    place = {"id": "caution"} if section is document.caution else {}
    return element("section", element("h2", section.title), *shown, **place)


def _part(part: Part) -> Html:
    match part:
        case Pairs():
            return element("dl", *(joined(element("dt", label), element("dd", text)) for label, text in part.rows))
        case Grid():
            return _grid(part)
        case Code():
            button = element("button", "Copy", type="button")
            return element("div", button, element("pre", element("code", part.text)), class_="paste")
        case Points():
            return element("ul", *(element("li", _with_code(sentence)) for sentence in part.sentences))
        case Picture():
            return _picture(part)


def _with_code(sentence: str) -> Html:
    """What stands between two backticks is code."""
    pieces = sentence.split("`")
    if len(pieces) % 2 == 0:
        return joined(sentence)
    return joined(*(element("code", piece) if odd % 2 else piece for odd, piece in enumerate(pieces)))


def _grid(grid: Grid) -> Html:
    head = element("tr", *(element("th", name, scope="col") for name in grid.head))
    rows = [element("tr", element("th", row[0], scope="row"), *map(_entry, row[1:])) for row in grid.rows]
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="scroll", tabindex="0")


def _entry(text: str) -> Html:
    return element("td", text, class_="best") if text.startswith("* ") else element("td", text)


def _picture(picture: Picture) -> Html:
    data = b64encode(svg(picture.draw())).decode()
    image = void("img", alt=picture.caption, src=f"data:image/svg+xml;base64,{data}")
    return element("figure", image, element("figcaption", picture.caption))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
