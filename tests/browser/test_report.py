"""The page as a browser shows it: on a telephone and on a desk, in light and in dark."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.chromium import Tab, chromium, found
from builders import a_block, a_load, a_profile, a_validation_request

from dsd_tune.emit.formats import Format, emit
from dsd_tune.model.closed_loop import Outcome
from dsd_tune.records.interval import Interval
from dsd_tune.records.validation import ServedArm
from dsd_tune.report.content import document
from dsd_tune.report.html_page import page
from dsd_tune.validate import conclude

pytestmark = pytest.mark.browser

TELEPHONE, DESK = 375, 1440


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """One browser for all tests; where none is installed they are skipped, and fail in CI, which has one."""
    program = found()
    if program is None and not os.environ.get("DSD_TUNE_REQUIRE_SERVICES"):
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    assert program, "no Chromium is installed"
    with chromium(program, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on disk, with every kind of picture; that of the blocks holds an image of its own."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    loads = [a_load(arm=arm, start=n, concurrency=c) for arm in ServedArm for n in range(3) for c in (1, 4)]
    foretold = Outcome(Interval(0.04, 0.03, 0.05), 0, None)
    servers = conclude(a_validation_request(), loads, ServedArm.TABLE, lambda *_: foretold, 1.0)
    blocks = [a_block(round=n, step_s=(0.02 + n / 1e3,)) for n in range(6)]
    path.write_text(page(document(a_profile(validation=servers), blocks, ("a remark",))))
    return path


@pytest.mark.parametrize("width", [TELEPHONE, DESK])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet(tab: Tab, report: Path, width: int, scheme: str) -> None:
    """It logs nothing, and asks for nothing but itself and the pictures that it holds."""
    tab.open(report, width, scheme)
    assert tab.complaints() == []
    assert [address for address in tab.requests() if not address.startswith("data:")] == [report.as_uri()]


@pytest.mark.parametrize("width", [TELEPHONE, DESK])
def test_the_page_is_as_wide_as_the_screen(tab: Tab, report: Path, width: int, tmp_path: Path) -> None:
    """Nothing sticks out sideways, no text is smaller than 12 pixels, and every picture is drawn."""
    tab.open(report, width)
    assert tab.value_of("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    sizes = "[...document.querySelectorAll('main *')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert tab.value_of(f"Math.min(...{sizes})") >= 12
    drawn = "[...document.images].map(i => i.complete && i.naturalWidth > 0 && i.getBoundingClientRect().width > 300)"
    assert set(tab.value_of(drawn)) == {True}
    tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000


def test_two_pictures_stand_beside_each_other_on_a_desk(tab: Tab, report: Path) -> None:
    """Where there is room pictures share a row, and on a telephone they do not."""
    beside = "(([a, b]) => a.getBoundingClientRect().y === b.getBoundingClientRect().y)(document.images)"
    tab.open(report, DESK)
    assert tab.value_of(beside)
    tab.open(report, TELEPHONE)
    assert not tab.value_of(beside)


def test_the_copy_button_copies(tab: Tab, report: Path) -> None:
    """A click puts the whole line on the clipboard, as emit-config prints it, and the button says so."""
    tab.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.open(report, DESK)
    tab.click(".paste button")
    assert tab.value_of("navigator.clipboard.readText()") == emit(a_profile(), Format.CLI).text
    assert tab.value_of("document.querySelector('.paste button').textContent") == "Copied"


def test_dark_is_dark(tab: Tab, report: Path) -> None:
    """Ground and ink change places with the reader's preference."""
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.open(report, DESK, "light")
    assert tab.value_of(ground) == "rgb(255, 255, 255)"
    tab.open(report, DESK, "dark")
    assert tab.value_of(ground) == "rgb(22, 22, 22)"


def test_the_page_s_own_policy_stops_foreign_content(tab: Tab, report: Path, tmp_path: Path) -> None:
    """Even markup that were smuggled in could neither run nor load anything."""
    smuggled = "<script>document.title = 'run'</script><img src='http://127.0.0.1:9/x.png'><main>"
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text().replace("<main>", smuggled))
    tab.open(broken, DESK)
    assert tab.value_of("document.title") != "run"
    assert tab.complaints()
