"""Load that hovers at a boundary of the table, on real servers: how often does K switch, what does it cost, same texts?

Run as `python benchmarks/hovering.py PROFILE -o DIR`, with the profile of a sweep on this machine. As many clients as
the first batch size of the table's last range ask, think for a moment and ask again, so requests join and leave there
all the time. Four servers are alive together and take turns (A B B A): two alike without speculation, the table, and
`hysteresis`. Each turn also times twice as many clients that do not think, where both policies run one K; a server's
speed under the hovering load is taken over that, because a server may be slow for as long as it lives. Sitting after
sitting starts new servers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from arms import Arm, ratio, sitting, told, turns, under_policy
from clients import Served, chat

from dsd_tune.engines.scrape import Scrape
from dsd_tune.engines.vllm_server import VllmServer
from dsd_tune.model.choices import NO_SPECULATION
from dsd_tune.records.profile import Profile
from dsd_tune.storage import formats
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

TWIN, TABLE, HYSTERESIS = "its twin", "table", "hysteresis"
TOKENS = (24, 31, 40, 17)
THINK_S = 0.15


@dataclass(frozen=True, slots=True)
class Turn:
    """One server under the hovering load: tokens a second there and with steady clients, switches, steps, texts."""

    speed: float
    steady: float
    switches: float
    steps: float
    texts: list[str]


def main() -> None:
    """Measure sitting after sitting, each written down before the next, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="for logs and raw numbers")
    parser.add_argument("--requests", type=int, default=120, help="in a turn")
    parser.add_argument("--sittings", type=int, default=4, help="starts of each server; 2 for an interval")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each server in a sitting")
    asked = parser.parse_args()
    profile = formats.read(formats.PROFILE, asked.profile)
    sittings = []
    for number in range(asked.sittings):
        sittings.append(sit(profile, asked.requests, asked.rounds, asked.output_dir / f"sitting-{number}"))
        raw = [{name: [asdict(turn) for turn in of] for name, of in one.items()} for one in sittings]
        (asked.output_dir / "hovering.json").write_text(json.dumps(raw) + "\n", encoding="utf-8")
    compare(sittings)


def sit(profile: Profile, requests: int, rounds: int, folder: Path) -> dict[str, list[Turn]]:
    """Each server's turns."""
    assert profile.request is not None
    assert profile.decision.table is not None
    folder.mkdir(parents=True, exist_ok=True)
    clients = profile.decision.table.ranges[-1].first
    arms = {NO_SPECULATION: Arm(), TWIN: Arm()} | {
        name: under_policy(profile, folder / f"{name}.json", name) for name in (TABLE, HYSTERESIS)
    }
    found: dict[str, list[Turn]] = {name: [] for name in arms}
    with sitting(profile, arms, folder) as servers:
        for server in servers.values():
            serve(server, profile.request.model, clients, 2 * clients)
        for name in turns(list(arms), rounds):
            found[name].append(turn(servers[name], profile.request.model, clients, requests))
            print(f"{folder.name}: {name} {found[name][-1].speed:.1f} tokens/s", flush=True)
    return found


def turn(server: VllmServer, model: str, clients: int, requests: int) -> Turn:
    """The hovering load, and as many requests from steady clients."""
    before = Scrape.fetch(server.url)
    served, speed = serve(server, model, clients, requests)
    seen = Scrape.fetch(server.url).since(before)
    _, steady = serve(server, model, 2 * clients, requests, think_s=0)
    switches, steps = seen.total("dsd_tune:k_switches_total"), seen.total("dsd_tune:steps_total")
    return Turn(speed, steady, switches, steps, [one.text for one in served])


def serve(
    server: VllmServer, model: str, clients: int, requests: int, think_s: float = THINK_S
) -> tuple[list[Served], float]:
    """The same requests in the same order each time, and tokens a second."""
    prompts = load_prompts(prepare(print).prompts)

    def ask(number: int) -> Served:
        served = chat(server.url, model, prompts[number % len(prompts)].text, TOKENS[number % len(TOKENS)])
        time.sleep(think_s)
        return served

    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        served = list(pool.map(ask, range(requests)))
    return served, sum(one.output_tokens for one in served) / (time.monotonic() - began)


def compare(sittings: Sequence[Mapping[str, Sequence[Turn]]]) -> None:
    """Switches, speed and texts, `hysteresis` against the table."""
    rates = {}
    for name in (TABLE, HYSTERESIS):
        of = [one for sitting in sittings for one in sitting[name]]
        rates[name] = 1000 * sum(one.switches for one in of) / sum(one.steps for one in of)
        print(f"{name}: {rates[name]:.1f} switches in 1,000 steps")
    raw, relative = (
        {name: [fmean(of(one) for one in sitting[name]) for sitting in sittings] for name in (TABLE, HYSTERESIS)}
        for of in (lambda one: one.speed, lambda one: one.speed / one.steady)
    )
    if len(sittings) > 1:
        print(f"tokens/s, hysteresis over table: {told(ratio(raw[TABLE], raw[HYSTERESIS]))}")
        print(f"over each server's steady speed: {told(ratio(relative[TABLE], relative[HYSTERESIS]))}")
    for name in (TWIN, TABLE, HYSTERESIS):
        pairs = [
            (text, other)
            for sitting in sittings
            for plain, one in zip(sitting[NO_SPECULATION], sitting[name], strict=True)
            for text, other in zip(plain.texts, one.texts, strict=True)
        ]
        print(f"texts of {name} that differ from {NO_SPECULATION}: {sum(a != b for a, b in pairs)} of {len(pairs)}")


if __name__ == "__main__":
    main()
