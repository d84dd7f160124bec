"""Text that the drafter cannot predict comes in mid-run and goes again: does `goodput` follow, on a live server?

Run as `python benchmarks/shift.py PROFILE -o DIR`, with the profile of a sweep of the testbed on this machine. One
`vllm serve` runs everything, so the luck of its start is in no comparison: an arm comes into force by replacing the
profile under it. First each K is tried on each text; the best of each makes the table for that text. Then the tables
and `goodput` take turns (A B C C B A), each through predictable, strange and predictable text again, with the same
number of clients throughout. Writes `shift.json` to DIR, which `shift_figure.py` draws.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from threading import Event

import numpy as np
from arms import deployable, ratio, told, turns, under_policy
from clients import chat

from dsd_tune.engines.scrape import Scrape
from dsd_tune.engines.vllm_server import VllmServer
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table
from dsd_tune.runtime.costs import StepTimes
from dsd_tune.storage import formats
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

GOODPUT = "goodput"
TEXTS = ("predictable", "strange", "predictable")
PHASES = ("predictable", "strange", "predictable again")
STRANGE = Path(__file__).with_name("strange.jsonl")
"""Russian and Chinese, which the drafter never saw: about one first draft in seven is accepted. English nonsense would
not do: the target answers in the English that the drafter knows."""
TOKENS = 96


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's counters at a moment: seconds since the run began, tokens made, steps by K."""

    at_s: float
    tokens: float
    steps: dict[int, float]


@dataclass(frozen=True, slots=True)
class Run:
    """One arm through the phases, each `phase_s` long."""

    arm: str
    phase_s: float
    readings: list[Reading]

    def speed(self, phase: int) -> float:
        """Tokens a second in a phase."""
        begin, end = phase * self.phase_s, (phase + 1) * self.phase_s
        at, tokens = [r.at_s for r in self.readings], [r.tokens for r in self.readings]
        return float(np.interp(end, at, tokens) - np.interp(begin, at, tokens)) / self.phase_s


class Load:
    """A server under a constant number of clients, and the profile in force there."""

    def __init__(self, server: VllmServer, profile: Profile, path: Path, clients: int) -> None:
        assert profile.request is not None
        self._server, self._profile, self._path, self._clients = server, profile, path, clients
        self._model = profile.request.model
        files = {"predictable": prepare(print).prompts, "strange": STRANGE}
        self._texts = {name: [prompt.text for prompt in load_prompts(file)] for name, file in files.items()}
        self._number = count()

    def run(self, arm: str, texts: Sequence[str], phase_s: float) -> Run:
        """Serve one text after another, `phase_s` each."""
        over, began = Event(), time.monotonic()

        def keep_busy() -> None:
            while not over.is_set():
                phase = min(int((time.monotonic() - began) / phase_s), len(texts) - 1)
                words = self._texts[texts[phase]]
                chat(self._server.url, self._model, words[next(self._number) % len(words)], TOKENS)

        readings = []
        with ThreadPoolExecutor(self._clients) as pool:
            busy = [pool.submit(keep_busy) for _ in range(self._clients)]
            try:
                while not readings or readings[-1].at_s < len(texts) * phase_s:
                    readings.append(self._read(began))
                    time.sleep(1)
            finally:
                over.set()
        for client in busy:
            client.result()
        return Run(arm, phase_s, readings)

    def enforce(self, profile: Profile) -> None:
        """Replace the profile, and wait until the engine has taken it. It looks while it has something to do."""
        taken = self._server.log.read_text().count("is applied")
        formats.write(formats.PROFILE, self._path, profile)
        while self._server.log.read_text().count("is applied") == taken:
            chat(self._server.url, self._model, self._texts["predictable"][0], TOKENS)

    def goodput(self) -> None:
        """Let the policy decide, with all that was measured."""
        self.enforce(deployable(self._profile))

    def fixed(self, k: int) -> None:
        """Put a table for this load into force. Without step times, `goodput` follows the table.

        The batch sizes of this load all have `k`. A table of one K alone would be a fixed K, which the runtime leaves
        to vLLM, so the largest batch size, which this load never reaches, has another.
        """
        size, other = self._profile.decision.max_num_seqs, 0 if k else 1
        table = Table.from_dense([k] * (size - 1) + [other])
        self.enforce(replace(deployable(self._profile, table), cells=()))

    def _read(self, began: float) -> Reading:
        seen = Scrape.fetch(self._server.url)
        steps = {int(k): value for (k,), value in seen.by("dsd_tune:steps_total", "k").items()}
        return Reading(time.monotonic() - began, seen.total("vllm:generation_tokens_total"), steps)


def best_k(load: Load, ks: Sequence[int], text: str, seconds: float) -> int:
    """The K with which a text is served fastest, each tried twice; the first turn of all warms up."""
    speeds: dict[int, list[float]] = defaultdict(list)
    load.fixed(ks[0])
    load.run("warm-up", [text], seconds / 2)
    for k in [*ks, *reversed(ks)]:
        load.fixed(k)
        speeds[k].append(load.run(f"K={k}", [text], seconds).speed(0))
    print(f"{text} text:", *(f"K={k} {fmean(speeds[k]):.1f} tokens/s" for k in ks), flush=True)
    return max(ks, key=lambda k: fmean(speeds[k]))


def compare(runs: Sequence[Run]) -> Iterator[str]:
    """`goodput` over each table and over the better of both, phase by phase, paired by round."""
    by_arm: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_arm[run.arm].append(run)
    ours = by_arm.pop(GOODPUT)
    for phase, name in enumerate(PHASES):
        speeds = [run.speed(phase) for run in ours]
        tables = {arm: [run.speed(phase) for run in theirs] for arm, theirs in by_arm.items()}
        better = max(tables, key=lambda arm: fmean(tables[arm]))
        yield f"{name}: goodput {fmean(speeds):.1f} tokens/s, {told(ratio(tables[better], speeds))} of the {better}"
        for arm in tables.keys() - {better}:
            yield f"{name}: the {arm} {told(ratio(tables[better], tables[arm]))} of the {better}"


def main() -> None:
    """Try, alternate, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="for the log and raw numbers")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--phase", type=float, default=120, help="seconds")
    parser.add_argument("--try", type=float, default=20, dest="try_s", help="seconds for each K on each text, twice")
    parser.add_argument("--rounds", type=int, default=4, help="2 for an interval")
    asked = parser.parse_args()
    profile = formats.read(formats.PROFILE, asked.profile)
    asked.output_dir.mkdir(parents=True, exist_ok=True)
    path = asked.output_dir / "profile.json"
    runs: list[Run] = []
    with under_policy(profile, path, GOODPUT).serve(profile, asked.output_dir / "server.log") as server:
        load = Load(server, profile, path, asked.clients)
        ks = sorted(StepTimes.of(profile).ks)
        tables = {f"table for {text} text": best_k(load, ks, text, asked.try_s) for text in dict.fromkeys(TEXTS)}
        for arm in turns([GOODPUT, *tables], asked.rounds):
            load.fixed(tables[arm]) if arm in tables else load.goodput()
            runs.append(load.run(arm, TEXTS, asked.phase))
            print(arm, *(f"{runs[-1].speed(phase):.1f}" for phase in range(len(TEXTS))), "tokens/s", flush=True)
            raw = {"clients": asked.clients, "tables": tables, "runs": [asdict(run) for run in runs]}
            (asked.output_dir / "shift.json").write_text(json.dumps(raw) + "\n", encoding="utf-8")
    if asked.rounds > 1:
        print(*compare(runs), sep="\n")


if __name__ == "__main__":
    main()
