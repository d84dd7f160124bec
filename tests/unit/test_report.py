"""A document as a page and as Markdown: whole, safe against what it quotes, and asking nobody for anything."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from builders import a_block, a_decided_profile, a_profile, a_warning, fitted_import

from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.report.content import document
from dsd_tune.report.document import Code, Document, Grid, Points, Section
from dsd_tune.report.html_page import page
from dsd_tune.report.html_text import Html, element, joined, void
from dsd_tune.report.markdown import markdown
from dsd_tune.report.pictures import pictures

HOSTILE = "</script><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)> `*_[a](b)|"


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are a matter of test_plots; here they only cost time."""
    monkeypatch.setattr("dsd_tune.report.html_page.svg", lambda figure: b"<svg/>")


class _Reader(HTMLParser):
    """Collects what a browser would: elements with their attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember an element, and that it is open unless it cannot have content."""
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Remember text."""
        self.text += data

    def count(self, tag: str) -> int:
        """How many elements of a kind there are."""
        return sum(name == tag for name, _ in self.elements)


def _page(profile: Profile) -> _Reader:
    return _Reader(page(document(profile, [a_block()], ("it is said",))))


def test_text_is_escaped_unless_it_is_html() -> None:
    """What is not HTML by type is text, in children and in attributes."""
    assert element("p", "a < b & c", id='"x"') == '<p id="&quot;x&quot;">a &lt; b &amp; c</p>'
    assert joined(Html("<b>"), "<b>") == "<b>&lt;b&gt;"
    assert void("meta", http_equiv="x", class_="y") == '<meta http-equiv="x" class="y">'


def test_a_page_says_the_verdict_first() -> None:
    """The heading is the verdict with its table, and the paste-ready line is the first section."""
    read = _page(a_profile())
    headings = [tag for tag, _ in read.elements if tag in {"h1", "h2"}]
    assert headings[:2] == ["h1", "h2"]
    assert read.text.index("Deploy this table: [[1,4,2],[5,16,0]]") < read.text.index("What to paste")
    assert read.text.index("vllm serve") < read.text.index("Why")
    assert "it is said" in read.text


def test_a_page_asks_nobody_for_anything() -> None:
    """Its policy forbids every load, and whatever has an address holds its data itself."""
    read = _page(a_profile())
    addresses = [
        value for _, attributes in read.elements for key, value in attributes.items() if key in {"src", "href"}
    ]
    assert addresses
    assert all(str(address).startswith(("data:", "#")) for address in addresses)
    policy = next(a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; img-src data:;")


@pytest.mark.parametrize("tag", ["script", "style"])
def test_the_policy_allows_our_own_text_alone(tag: str) -> None:
    """Script and style are named by the hash of what is between their tags."""
    text = page(document(a_profile(), [], ()))
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert f"{tag}-src &#x27;sha256-{digest}&#x27;" in text


def test_a_page_is_whole() -> None:
    """Every element is closed in its order, and every picture says in words what it shows."""
    read = _page(a_profile())
    assert read.open == []
    images = [attributes for tag, attributes in read.elements if tag == "img"]
    assert images
    assert all(len(str(image["alt"])) > 40 for image in images)


def test_names_cannot_break_out_of_a_page() -> None:
    """A model, flag or warning with HTML in it is shown as it is, and runs nothing."""
    profile = a_decided_profile(model=HOSTILE, flags=(HOSTILE,), config={"method": "eagle", "model": HOSTILE})
    read = _page(replace(profile, warnings=(a_warning(said=HOSTILE),)))
    assert read.count("script") == 1
    assert not any("onerror" in attributes for _, attributes in read.elements)
    assert read.text.count("alert(1)") > 3


def test_names_cannot_break_out_of_markdown() -> None:
    """They make no link, no emphasis, no HTML and no new column; what is pasted stays as it is."""
    profile = replace(a_decided_profile(model=HOSTILE), warnings=(a_warning(said=HOSTILE),))
    text = markdown(document(profile, [], ()), None)
    (warning,) = [line for line in text.splitlines() if line.startswith("- \\<")]
    assert not re.search(r"(?<!\\)[<>`*_|\[\]]", warning.removeprefix("- "))
    code = Section("x", (Code("a ``` b"),))
    assert "````\na ``` b\n````" in markdown(Document("t", "a", "r", None, (code,), "o"), None)


def test_markdown_says_what_the_page_says() -> None:
    """Verdict, paste-ready line, grid, warnings and fingerprint are in it, too."""
    text = markdown(document(a_profile(), [], ()), None)
    for wanted in ("deploy this table", "vllm serve", "| B | K=2 |", "few starts", "model digest"):
        assert wanted in text
    assert "![" not in text


def test_markdown_links_to_pictures_beside_it() -> None:
    """Each picture is a link into the folder that was named."""
    content = document(a_profile(), [], ())
    links = re.findall(r"!\[.*?\]\(<(.*?)>\)", markdown(content, "pictures of today"))
    assert links == [f"pictures of today/{picture.name}.png" for picture in content.pictures()]


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda verdict: verdict.name)
def test_a_report_pastes_what_is_advised(verdict: Verdict) -> None:
    """With speculation where it is advised, and without it, aloud, where it is not."""
    read = _page(a_decided_profile(verdict))
    advised = verdict in (Verdict.TABLE, Verdict.FIXED)
    assert ("--speculative-config '" in read.text) == advised
    assert ("This line leaves speculation out" in read.text) == (not advised)


def test_an_import_is_called_one() -> None:
    """Numbers of others are named so, with the facts of their files and the assumed intervals."""
    read = _page(fitted_import({(1, 0): 10.0, (1, 1): 8.0, (4, 0): 11.0, (4, 1): 9.0}))
    assert "measured by others, and imported" in read.text
    assert "a model" in read.text
    assert "deviations that had to be assumed" in read.text


def test_warnings_are_announced_at_the_top() -> None:
    """Their number stands under the verdict and leads to them; without any there is nothing to announce."""
    read = _page(a_profile())
    assert read.text.index("2 warnings and notes") < read.text.index("What to paste")
    assert [a["href"] for tag, a in read.elements if tag == "a"] == ["#caution"]
    assert sum(a.get("id") == "caution" for _, a in read.elements) == 1
    calm = a_profile()
    calm = replace(calm, warnings=(), decision=replace(calm.decision, remarks=()))
    assert _page(calm).count("a") == 0


def test_missing_cells_are_named_in_the_grid() -> None:
    """An unmeasured cell says so, and the best of a row is marked without colour."""
    content = document(fitted_import({(1, 0): 10.0, (1, 1): 8.0, (4, 0): 11.0, (1, 2): 9.0, (4, 2): 9.0}), [], ())
    grids = [part for section in content.sections for part in section.parts if isinstance(part, Grid)]
    assert grids[0].head == ("B", "no spec", "fixed 1", "fixed 2")
    assert grids[0].rows[1][2] == "not measured"
    assert grids[0].rows[1][3].startswith("* 9.0 (+18 ±")


def test_a_lopsided_grid_is_refused() -> None:
    """A row that does not fit its head is a mistake of ours, and is caught where it is made."""
    with pytest.raises(ValueError, match="every row needs 2 entries"):
        Grid(("a", "b"), (("1",),))
    assert Points(("one",)).sentences == ("one",)


def test_commands_in_sentences_are_code() -> None:
    """What stands between backticks is shown as code, escaped as ever; a lone backtick is a character."""
    profile = replace(a_profile(), warnings=(a_warning(said="ask `doctor <x>` first"), a_warning(said="a ` b")))
    text = page(document(profile, [], ()))
    assert "ask <code>doctor &lt;x&gt;</code> first" in text
    assert "a ` b" in text


@pytest.mark.parametrize("sizes", [(), (1, 2, 4)])
def test_a_caption_speaks_of_what_is_drawn(sizes: tuple[int, ...]) -> None:
    """CUDA-graph sizes are explained under the step times only where there are some."""
    profile = a_decided_profile()
    assert profile.environment
    environment = replace(profile.environment, graphs_dsd=replace(profile.environment.graphs_dsd, capture_sizes=sizes))
    captions = [picture.caption for picture in pictures(replace(profile, environment=environment), [])]
    assert any("CUDA-graph sizes" in caption for caption in captions) == bool(sizes)
