import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsd_tune.errors import DsdTuneError, UsageError
from dsd_tune.storage import files


@contextmanager
def _disk_full_at(size: int) -> Iterator[None]:
    """Let the kernel refuse bytes beyond `size` in any file of this process, taking those before it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _lines(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _holding(directory: Path, then: str) -> str:
    imports = "import os, signal; from pathlib import Path; from dsd_tune.storage.files import locked"
    return f"{imports}\nwith locked(Path({str(directory)!r})): {then}"


def test_a_line_appended_is_a_line_read(tmp_path: Path) -> None:
    """Lines come back in the order in which they were appended."""
    path = _lines(tmp_path / "log", "")
    for text in ('{"a": 1}', "2", '"three"'):
        files.append_line(path, text)
    assert files.read_json_lines(path) == [{"a": 1}, 2, "three"]


@pytest.mark.parametrize("torn", ['{"a', '{"a": 2}', "\x00\x00"], ids=["half", "without newline", "zeros"])
def test_an_unfinished_last_line_never_was(tmp_path: Path, torn: str) -> None:
    """A last line without its newline is not read, even if it parses, and is cut off before the next one."""
    path = _lines(tmp_path / "log", '{"a": 1}\n' + torn)
    assert files.read_json_lines(path) == [{"a": 1}]
    files.append_line(path, "3")
    assert path.read_text() == '{"a": 1}\n3\n'


def test_a_long_unfinished_line_is_cut_off_whole(tmp_path: Path) -> None:
    """What a crash left may be longer than what is read at once in search of its beginning."""
    path = _lines(tmp_path / "log", "1\n" + "x" * 200_000)
    files.append_line(path, "2")
    assert path.read_text() == "1\n2\n"


def test_a_file_that_is_one_unfinished_line_begins_anew(tmp_path: Path) -> None:
    """Where no line was ever finished, nothing is kept."""
    path = _lines(tmp_path / "log", '{"a')
    files.append_line(path, "2")
    assert path.read_text() == "2\n"


@pytest.mark.parametrize("bad", ['{"a', "", "NaN", "\udcff"], ids=["torn", "empty", "nan", "no utf-8"])
def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path, bad: str) -> None:
    """Damage that a crash cannot have done is refused with the number of the line."""
    path = tmp_path / "log"
    path.write_bytes(f"1\n{bad}\n3\n".encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match="log, line 2, is not JSON"):
        files.read_json_lines(path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """When the disk fills up amid a line, the error names the file, and the lines before it are all that is read."""
    path = _lines(tmp_path / "log", "1\n")
    with _disk_full_at(8), pytest.raises(DsdTuneError, match="log cannot be written") as raised:
        files.append_line(path, '"a long line"')
    assert "Free space" in raised.value.todo
    assert path.read_text() == "1\n"
    files.append_line(path, "2")
    assert files.read_json_lines(path) == [1, 2]


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """A file that cannot be replaced stays as it was, and nothing is left beside it."""
    path = _lines(tmp_path / "profile.json", "old")
    with _disk_full_at(8), pytest.raises(DsdTuneError, match=r"profile\.json cannot be written"):
        files.write_text(path, "new and longer")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("profile.json", "old")]


def test_a_crash_while_replacing_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the new text is safely on the disk, the old one is what a reader finds."""
    path = _lines(tmp_path / "profile.json", "old")
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(path.read_text()))
    files.write_text(path, "new")
    assert seen == ["old", "new"]


@pytest.mark.parametrize("read", [files.read_json, files.read_json_lines], ids=["json", "lines"])
def test_a_missing_file_is_named(tmp_path: Path, read: object) -> None:
    """Reading what is not there is the user's mistake and says which path it was."""
    assert callable(read)
    with pytest.raises(UsageError, match="absent cannot be read: No such file"):
        read(tmp_path / "absent")


def test_the_second_holder_is_refused(tmp_path: Path) -> None:
    """A directory that a process works in is refused to another, with that process's id, until it is let go."""
    code = _holding(tmp_path, "pass")
    with files.locked(tmp_path):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert f"UsageError: {tmp_path} is in use by process {os.getpid()}." in other.stderr
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    """A process that died while it held a directory leaves it free."""
    code = _holding(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    with files.locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
