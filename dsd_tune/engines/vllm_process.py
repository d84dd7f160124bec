"""The parent's side of one engine process: start it, talk to it with time limits, end it whatever happens."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsd_tune.engines.protocol import Measured
from dsd_tune.engines.vllm_log import last_words
from dsd_tune.engines.vllm_wire import (
    BlockOrder,
    Launch,
    block_line,
    configure_line,
    launch_line,
    read_configured,
    read_measured,
    read_reply,
)
from dsd_tune.errors import EngineFailed
from dsd_tune.records.condition import Condition
from dsd_tune.records.configured import Configured

START_LIMIT_S = 3600.0
"""Large models load, compile and capture graphs for many minutes; an hour means that they hang."""
MEASURE_LIMIT_S = 1800.0


class VllmProcess:
    """One child with vLLM in it. As a `RunningEngine` it measures; `configure` and `describe` need no weights."""

    def __init__(self, log: Path) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "dsd_tune.engines.vllm_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=_environment(),
                # Ctrl-C must reach the parent alone; it then closes its engines in order.
                start_new_session=True,
            )
        self._unread = b""

    @property
    def pid(self) -> int:
        """The child's process id, which is its group's too."""
        return self._child.pid

    def configure(self, flags: Sequence[str], environment: Mapping[str, str]) -> Configured:
        """See `vllm_configured.configured`."""
        return read_configured(self._ask(configure_line(flags, environment), START_LIMIT_S))

    def describe(self, launch: Launch) -> dict[str, Any]:
        """vLLM's view of `launch`: see `vllm_describe.describe`."""
        facts: dict[str, Any] = self._ask(launch_line("describe", launch), START_LIMIT_S)
        return facts

    def start(self, launch: Launch) -> None:
        """Load the engine; afterwards it can measure."""
        self._ask(launch_line("start", launch), START_LIMIT_S)

    def measure(self, batch_size: int, k: int, *, condition: Condition, steps: int, settle: int) -> Measured:
        """See `RunningEngine.measure`."""
        order = BlockOrder(batch_size, k, condition, steps, settle)
        return read_measured(self._ask(block_line(order), MEASURE_LIMIT_S))

    def close(self) -> None:
        """End the child and its workers. Safe to call twice and after a failure."""
        if self._child.stdin is not None and self._child.stdout is not None:
            with suppress(OSError):
                self._child.stdin.close()
            self._child.stdout.close()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # A child that died by itself may have left workers in its group.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def _ask(self, line: str, limit_s: float) -> Any:
        try:
            self._send(line)
            answer = self._receive(limit_s)
        except OSError as error:
            raise self._died() from error
        return read_reply(answer)

    def _send(self, line: str) -> None:
        assert self._child.stdin is not None
        if self._child.stdin.closed:
            raise EngineFailed("This engine has been closed.", "Start another.")
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()

    def _receive(self, limit_s: float) -> str:
        """The next reply line. Waiting is a system call, so an idle parent costs the engines nothing."""
        assert self._child.stdout is not None
        deadline = time.monotonic() + limit_s
        pipe = self._child.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise EngineFailed(f"vLLM gave no answer for {limit_s:.0f} s. {last_words(self._log)}", self._see_log())
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise self._died()
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    def _died(self) -> EngineFailed:
        return EngineFailed(f"vLLM's process ended. {last_words(self._log)}", self._see_log())

    def _see_log(self) -> str:
        return f"Its log is {self._log}."


def _environment() -> dict[str, str]:
    """One process for engine and scheduler; nobody's profile applied; no usage reports from measuring."""
    inherited = {key: value for key, value in os.environ.items() if key != "DSD_TUNE_PROFILE"}
    return {**inherited, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
