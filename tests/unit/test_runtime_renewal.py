"""A profile's file that is replaced under a running engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from dsd_tune.runtime.renewal import INTERVAL_S, Renewal


class Clock:
    """Time that passes when told to."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def replace_file(path: Path, text: str) -> None:
    """As an atomic writer does: another file takes its place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def later(renewal: Renewal[str], clock: Clock) -> list[str | None]:
    """Poll as an engine does: when the time has come, and again when the reader is through."""
    clock.now += INTERVAL_S
    first = renewal.poll()
    if renewal._reader is not None:
        renewal._reader.join()
    return [first, renewal.poll(), renewal.poll()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is there from the beginning."""
    (tmp_path / "profile.json").write_text("first")
    return tmp_path / "profile.json"


def a_renewal(path: Path, clock: Clock, refuse: Callable[[Exception], None] = pytest.fail) -> Renewal[str]:
    """Reads text; an empty file is broken."""

    def load() -> str:
        text = path.read_text()
        if not text:
            raise ValueError("empty")
        return text

    return Renewal(path, load, refuse, clock)


def test_an_unchanged_file_is_not_read(path: Path) -> None:
    """What the engine was started with is not loaded again."""
    clock = Clock()
    assert later(a_renewal(path, clock), clock) == [None, None, None]


def test_a_replaced_file_is_handed_out_once(path: Path) -> None:
    """The poll that finds it does not wait for it; a later one brings it, and only one."""
    clock = Clock()
    renewal = a_renewal(path, clock)
    replace_file(path, "second")
    assert later(renewal, clock) == [None, "second", None]
    replace_file(path, "third")
    assert later(renewal, clock) == [None, "third", None]


def test_the_file_is_looked_at_once_in_a_while(path: Path) -> None:
    """Between two looks an engine's steps cost nothing."""
    clock = Clock()
    renewal = a_renewal(path, clock)
    replace_file(path, "second")
    clock.now += INTERVAL_S / 2
    renewal.poll()
    assert renewal._reader is None


def test_a_broken_file_is_reported_once_and_a_mended_one_taken(path: Path) -> None:
    """Nothing changes until the file is replaced again."""
    clock, refused = Clock(), list[Exception]()
    renewal = a_renewal(path, clock, refused.append)
    replace_file(path, "")
    assert later(renewal, clock) + later(renewal, clock) == [None] * 6
    assert [str(error) for error in refused] == ["empty"]
    replace_file(path, "mended")
    assert later(renewal, clock) == [None, "mended", None]


def test_a_machine_without_room_for_a_thread_keeps_what_it_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll does not raise, which would end all steering; the next file is read again."""
    clock, refused = Clock(), list[Exception]()
    renewal = a_renewal(path, clock, refused.append)
    replace_file(path, "second")

    def no_room(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(Thread, "start", no_room)
        assert later(renewal, clock) == [None] * 3
    assert [str(error) for error in refused] == ["can't start new thread"]
    replace_file(path, "third")
    assert later(renewal, clock) == [None, "third", None]


def test_a_file_that_vanishes_changes_nothing(path: Path) -> None:
    """It may be on its way back; when it is, it is read."""
    clock = Clock()
    renewal = a_renewal(path, clock)
    path.unlink()
    assert later(renewal, clock) == [None] * 3
    path.write_text("back")
    assert later(renewal, clock) == [None, "back", None]
