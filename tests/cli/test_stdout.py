import subprocess
import sys
from pathlib import Path

import pytest

RUN = "from dsd_tune.cli.app import main; main()"
SAY = "import typer; from dsd_tune.cli.app import app, main; app.command('say')(lambda: typer.echo({!r})); main()"


def _ended(code: str, *words: str, stdout: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        stdout=stdout,  # type: ignore[call-overload]
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("text", ["x", "x" * 100_000], ids=["short", "longer than a buffer"])
@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}, {"PYTHONIOENCODING": "ascii"}], ids=str)
def test_a_full_disk_is_one_sentence(text: str, environment: dict[str, str]) -> None:
    """What cannot be written to stdout is an error in one sentence, not a traceback and no success."""
    with Path("/dev/full").open("w") as full:
        done = _ended(SAY.format(text), "say", stdout=full, **environment)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("Error: stdout cannot be written")
    assert done.returncode == 1


def test_a_reader_that_left_is_not_scolded() -> None:
    """A pipe closed at its other end, as by `head`, ends the command without a word."""
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as reader:
        reader.wait()
        done = _ended(RUN, "--help", stdout=reader.stdin)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "koi8-r", "utf-8"])
def test_any_terminal_will_do(encoding: str) -> None:
    """A sign that the terminal's encoding lacks is replaced, and the rest is printed."""
    done = _ended(
        SAY.format("5 \N{PLUS-MINUS SIGN} 1 \N{GREEK CAPITAL LETTER OMEGA}"),
        "say",
        stdout=subprocess.PIPE,
        PYTHONIOENCODING=encoding,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"5 ")


def test_a_closed_stdout_is_no_traceback() -> None:
    """A process started without a stdout does its work in silence."""
    closed = f"import sys; sys.stdout = None; {RUN}"
    done = _ended(closed, "--help", stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, b"")
