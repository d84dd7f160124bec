"""A real `vllm serve` for as long as a block of code runs, and vLLM's own counters of what it drafted."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from dsd_tune.engines.leash import leashed
from dsd_tune.engines.vllm_log import last_words
from dsd_tune.errors import EngineFailed, EnvironmentUnfit, UsageError

START_LIMIT_S = 3600.0
HOST = "127.0.0.1"
_STOP_LIMIT_S = 20.0
_COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted_tokens",
}
# A proxy from the environment must not come between us and our own loopback.
_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True, slots=True)
class DraftCounters:
    """vLLM's counters since the server's start, summed over its engines. All 0 without speculation."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def since(self, earlier: DraftCounters) -> DraftCounters:
        """What was counted between two readings."""
        return DraftCounters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted_tokens - earlier.accepted_tokens,
        )


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A server that answers at `url`; `log` holds everything it says."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def draft_counters(self) -> DraftCounters:
        """Read vLLM's own metrics.

        Raises:
            EngineFailed: the server does not answer.
        """
        try:
            with _open(f"{self.url}/metrics", timeout=30) as page:
                return parse_draft_counters(page.read().decode())
        except (URLError, HTTPException, OSError) as error:
            raise EngineFailed(f"The server at {self.url} does not answer: {error}.", f"See {self.log}.") from error


@contextmanager
def vllm_server(
    model: str,
    arguments: Sequence[str],
    port: int,
    log: Path,
    limit_s: float = START_LIMIT_S,
    runtime: Mapping[str, str] | None = None,
) -> Iterator[VllmServer]:
    """Run `vllm serve model --port port arguments...` on the loopback until the block ends, however it ends.

    `runtime` are variables of our plugin. The caller's own never reach the server: it would not be what was asked for.
    Nor does a key for its users.
    If this process is killed, the server ends with it.

    Raises:
        UsageError: the port is taken.
        EnvironmentUnfit: there is no `vllm` command beside this Python.
        EngineFailed: the server ended, or was not healthy within `limit_s` seconds.
    """
    require_free_port(port)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(vllm_command()), "serve", model, *arguments, "--host", HOST, "--port", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            leashed(command),
            stdin=subprocess.PIPE,  # held open: its end is what the leash feels
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=_environment(runtime or {}),
            start_new_session=True,
        )
    try:
        server = VllmServer(f"http://{HOST}:{port}", log, process)
        _wait_until_healthy(server, limit_s)
        yield server
    finally:
        _stop(process)


def _environment(runtime: Mapping[str, str]) -> dict[str, str]:
    # Our own clients, on the loopback, bring no key.
    others = {"DSD_TUNE_PROFILE", "VLLM_API_KEY"}
    return {key: value for key, value in os.environ.items() if key not in others} | dict(runtime)


def require_free_port(port: int) -> None:
    """Raise UsageError, naming the port, if something listens on it or it cannot be had."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # vLLM binds with this option too: a port just given back is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"Port {port} on {HOST} is not free: {error}.", "Choose another with --port.") from error


def parse_draft_counters(metrics: str) -> DraftCounters:
    """Sum the three counters over all engines in Prometheus text; `_created` times and per-position counts stay out."""
    totals = dict.fromkeys(_COUNTERS.values(), 0.0)
    for line in metrics.splitlines():
        sample = re.match(r"([a-zA-Z_:][\w:]*?)(?:_total)?(?:\{.*\})?\s+(\S+)", line)
        if sample and sample[1] in _COUNTERS:
            totals[_COUNTERS[sample[1]]] += float(sample[2])
    return DraftCounters(**{name: int(total) for name, total in totals.items()})


def vllm_command() -> Path:
    """The console script of the environment that runs us, not whatever comes first in PATH.

    Raises:
        EnvironmentUnfit: there is none.
    """
    command = Path(sys.executable).parent / "vllm"
    if not command.exists():
        raise EnvironmentUnfit(f"There is no {command}.", "Install vLLM into the environment of dsd-tune.")
    return command


def _wait_until_healthy(server: VllmServer, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not _healthy(server.url):
        if server.process.poll() is not None:
            raise EngineFailed(f"vllm serve ended. {last_words(server.log)}", f"Its log is {server.log}.")
        if time.monotonic() > deadline:
            what = f"vllm serve was not healthy within {limit_s:.0f} s."
            raise EngineFailed(f"{what} {last_words(server.log)}", f"Its log is {server.log}.")
        time.sleep(0.5)


def _healthy(url: str) -> bool:
    try:
        with _open(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, HTTPException, OSError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask once, then kill the whole group: engine cores and workers are the server's children."""
    process.terminate()
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
