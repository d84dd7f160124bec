"""A program on a leash: it ends with its parent, however that ended."""

import signal
import subprocess
import sys

from processes import ended

from dsd_tune.engines.leash import leashed

_GRANDCHILD = "import os, subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
_LIMIT_S = 30


def _leashed(*program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        leashed(program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_the_end_of_stdin_kills_the_program_and_what_it_started() -> None:
    """As when the parent was killed: nothing of the group is left."""
    leash = _leashed(sys.executable, "-c", _GRANDCHILD)
    assert leash.stdin is not None
    assert leash.stdout is not None
    grandchild = int(leash.stdout.readline())
    leash.stdin.close()
    assert leash.wait(_LIMIT_S) == -signal.SIGKILL
    assert ended(grandchild, _LIMIT_S)


def test_a_killed_parent_takes_the_program_with_it() -> None:
    """SIGKILL gives nobody time to clean up, and the leash needs none."""
    code = (
        "import subprocess, sys\n"
        "from dsd_tune.engines.leash import leashed\n"
        "run = leashed([sys.executable, '-c', sys.argv[1]])\n"
        "leash = subprocess.Popen(run,\n"
        "    stdin=subprocess.PIPE, start_new_session=True)\n"
        "leash.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, _GRANDCHILD], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    parent.kill()
    parent.wait(_LIMIT_S)
    assert ended(grandchild, _LIMIT_S)


def test_a_polite_end_is_passed_on() -> None:
    """SIGTERM reaches the program, whose exit code is the leash's."""
    patient = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print(1, flush=True); signal.pause()"
    leash = _leashed(sys.executable, "-c", patient)
    assert leash.stdout is not None
    leash.stdout.readline()
    leash.terminate()
    assert leash.wait(_LIMIT_S) == 7


def test_a_program_that_ends_by_itself_ends_the_leash() -> None:
    """Its exit code is handed on."""
    assert _leashed(sys.executable, "-c", "raise SystemExit(3)").wait(_LIMIT_S) == 3
