"""A cached folder heals itself from whatever a crash can leave behind."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dsd_tune.testbed.cached import CachedFolder, locked


@pytest.fixture
def builds() -> list[Path]:
    """The directories that were built, in order."""
    return []


@pytest.fixture
def folder(tmp_path: Path, builds: list[Path]) -> CachedFolder:
    """A folder with one file of weights and one in a subfolder."""
    return CachedFolder(tmp_path / "model", "key-1", _builder(builds))


def _builder(builds: list[Path]) -> Callable[[Path], None]:
    def build(into: Path) -> None:
        builds.append(into)
        (into / "weights").write_bytes(b"w" * 1000)
        (into / "more").mkdir()
        (into / "more" / "config").write_text("{}")

    return build


def _truncate(path: Path) -> None:
    (path / "weights").write_bytes(b"w" * 10)


def _replace_in_equal_size(path: Path) -> None:
    (path / "weights").write_bytes(b"x" * 1000)
    os.utime(path / "weights", ns=(1, 1))


def _remove_file(path: Path) -> None:
    (path / "more" / "config").unlink()


def _add_file(path: Path) -> None:
    (path / "stray").write_text("x")


def _remove_marker(path: Path) -> None:
    (path / "complete.json").unlink()


def _half_marker(path: Path) -> None:
    (path / "complete.json").write_text('{"key": "key')


def _empty(path: Path) -> None:
    for file in [path / "weights", path / "more" / "config", path / "complete.json"]:
        file.unlink()


def test_second_call_builds_nothing(folder: CachedFolder, builds: list[Path]) -> None:
    """A complete folder is left alone."""
    folder.ensure()
    folder.ensure()
    assert len(builds) == 1


@pytest.mark.parametrize(
    "damage",
    [_truncate, _replace_in_equal_size, _remove_file, _add_file, _remove_marker, _half_marker, _empty],
)
def test_damaged_folder_is_rebuilt(folder: CachedFolder, builds: list[Path], damage: Callable[[Path], None]) -> None:
    """Whatever is missing, short, changed or too much, the next call puts the whole folder back."""
    folder.ensure()
    damage(folder.path)
    assert not folder.complete()
    folder.ensure()
    assert len(builds) == 2
    assert (folder.path / "weights").read_bytes() == b"w" * 1000
    assert folder.complete()
    assert not (folder.path / "stray").exists()


def test_crash_while_building_leaves_the_old_state(folder: CachedFolder, builds: list[Path]) -> None:
    """A build that fails leaves neither a folder that looks complete nor rubbish beside it."""

    def fail(into: Path) -> None:
        (into / "weights").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CachedFolder(folder.path, "key-1", fail).ensure()
    assert list(folder.path.parent.iterdir()) == []
    folder.ensure()
    assert folder.complete()


def test_rubbish_of_a_killed_process_is_swept(folder: CachedFolder) -> None:
    """Directories that a killed build left are removed by the next build."""
    leftover = folder.path.parent / ".building-abc"
    leftover.mkdir()
    (leftover / "weights").write_text("half")
    folder.ensure()
    assert not leftover.exists()


def test_new_key_rebuilds(folder: CachedFolder, builds: list[Path]) -> None:
    """Another content under the same name replaces the folder."""
    folder.ensure()
    CachedFolder(folder.path, "key-2", folder.build).ensure()
    assert len(builds) == 2


def test_folder_without_key_is_rejected(tmp_path: Path) -> None:
    """A marker without a key would vouch for anything."""
    with pytest.raises(ValueError, match="key"):
        CachedFolder(tmp_path, "", lambda into: None)


def test_lock_keeps_two_apart(tmp_path: Path) -> None:
    """While one holds the lock of a directory, another waits for it."""
    entered = threading.Event()

    def enter() -> None:
        with locked(tmp_path):
            entered.set()

    other = threading.Thread(target=enter)
    with locked(tmp_path):
        other.start()
        assert not entered.wait(0.1)
    assert entered.wait(5)
    other.join()
