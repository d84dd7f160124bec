"""Runs a program that must not outlive its parent.

The parent holds the other end of stdin. When that end closes, however the parent ended, the program and all that it
started are killed. A server that somebody forgot would hold a GPU for days.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from types import FrameType


def leashed(command: Sequence[str]) -> list[str]:
    """The command that runs `command` on a leash. It needs nothing but a Python."""
    return [sys.executable, "-P", __file__, *command]


def main() -> None:
    """Run the program in this process's group, pass on SIGTERM, and end with its exit code."""
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        program.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    Thread(target=_kill_at_end_of_stdin, daemon=True).start()
    sys.exit(program.wait())


def _kill_at_end_of_stdin() -> None:
    while os.read(0, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
