"""The process that holds one vLLM engine: JSON commands on stdin, JSON replies on what was stdout, logs on stderr.

It ends at once when its stdin does, so no engine outlives the program that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

from dsd_tune.engines import vllm_block
from dsd_tune.engines.vllm_wire import error_line, read_launch, read_order, reply_line
from dsd_tune.errors import DsdTuneError


def main() -> None:
    """Answer commands until stdin ends."""
    replies = _claim_stdout()
    session = Session()
    for line in _commands():
        try:
            reply = reply_line(session.answer(json.loads(line)))
        except DsdTuneError as error:
            reply = error_line(error)
        replies.write(reply + "\n")
        replies.flush()


class Session:
    """The engine, once started, and the four commands."""

    def __init__(self) -> None:
        self._rig: vllm_block.Rig | None = None

    def answer(self, command: Mapping[str, Any]) -> Any:
        """Run one command. vLLM is imported by the first one, so that its failures land in the log."""
        if command["do"] == "measure":
            assert self._rig is not None
            return asdict(vllm_block.measure(self._rig, read_order(command["block"])))
        if command["do"] == "configure":
            from dsd_tune.engines.vllm_configured import configured

            return configured(command["flags"], command["environment"])
        launch = read_launch(command["launch"])
        if command["do"] == "describe":
            from dsd_tune.engines.vllm_describe import describe

            return describe(launch)
        from dsd_tune.engines.vllm_rig import start

        self._rig = start(launch)
        return None


def _claim_stdout() -> TextIO:
    """A private copy of stdout; whatever vLLM prints goes to stderr instead."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _commands() -> Iterator[str]:
    """Lines of stdin. A thread waits for them, so that the end of stdin is noticed in the middle of a step too."""
    lines: SimpleQueue[str] = SimpleQueue()
    Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        yield lines.get()


def _read(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    _end_now()


def _end_now() -> None:
    """Kill this process and vLLM's workers, which share its group. Nothing here is worth a slow farewell."""
    # vLLM's rendezvous file, named in the environment by its CPU worker, would stay behind.
    name = os.environ.get("VLLM_DIST_IDENT", "")
    if name.startswith("vllm_dist_"):
        (Path(tempfile.gettempdir()) / name).unlink(missing_ok=True)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
