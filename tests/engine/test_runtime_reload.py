"""A profile replaced a hundred times under a server that has requests all the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event

import pytest
from engine.traffic import ServedPair
from serving import write_profile

from dsd_tune.engines.vllm_server import DraftCounters, VllmServer
from dsd_tune.records.table import Table

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("quiet_cores")]

RELOADS = 100
CLIENTS = 4
# Up to the number of clients, one K each: whatever is scheduled, there is one right K.
TABLES = {3: Table.from_dense([3] * 7 + [1]), 1: Table.from_dense([1] * 7 + [3])}
SETTLED = 4 * CLIENTS
"""Drafts of the step that takes the profile, of the two in which K may lag, and of the one that is being reported."""


def test_a_hundred_reloads_change_k_and_nothing_else(tmp_path: Path) -> None:
    """Each time the new K is kept exactly two steps later, no request fails, and memory does not grow."""
    pair, path = ServedPair.tiny(tmp_path), tmp_path / "profile.json"
    profiles = {k: pair.profile(table) for k, table in TABLES.items()}
    write_profile(path, profiles[1])
    resident: list[int] = []
    with pair.serve({"DSD_TUNE_PROFILE": str(path)}) as server, busy(pair, server) as clients:
        for number in range(RELOADS):
            k = 1 if number % 2 else 3
            write_profile(path, profiles[k])
            await_applied(server, number + 2)
            settled = after(server, server.draft_counters(), SETTLED)
            seen = after(server, settled, SETTLED).since(settled)
            assert seen.draft_tokens == k * seen.drafts, f"reload {number}"
            resident.append(resident_kib(server.process.pid))
    assert all(client.result() > 0 for client in clients)
    # Until then the allocator takes room for the threads that read profiles, once and for all.
    half, quarter = RELOADS // 2, RELOADS // 4
    assert median(resident[-quarter:]) < 1.003 * median(resident[half:-quarter]), resident


@contextmanager
def busy(pair: ServedPair, server: VllmServer) -> Iterator[list[Future[int]]]:
    """Clients that send one request after another until the block ends; each gives how many were answered."""
    over = Event()

    def keep_busy(number: int) -> int:
        done = 0
        while not over.is_set():
            pair.complete(server, 64, number)
            done += 1
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            yield [pool.submit(keep_busy, number) for number in range(CLIENTS)]
        finally:
            over.set()


def await_applied(server: VllmServer, times: int) -> None:
    """Wait until the engine has said so often that a profile is applied."""
    deadline = time.monotonic() + 60
    while (said := server.log.read_text().count("is applied")) < times:
        assert time.monotonic() < deadline, f"{said} profiles were taken, not {times}"
        time.sleep(0.02)
    assert said == times


def after(server: VllmServer, before: DraftCounters, drafts: int) -> DraftCounters:
    """vLLM's counters, once so many more drafts were verified."""
    while (now := server.draft_counters()).since(before).drafts < drafts:
        time.sleep(0.01)
    return now


def resident_kib(session: int) -> int:
    """Memory of all processes of a server: each is in the session that it was started in."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                lines = (folder / "status").read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
    return total
