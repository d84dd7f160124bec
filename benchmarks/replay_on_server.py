"""Three traces on real servers, and what `replay` foretells of each: prints both, the error, and the ranking.

Run as `python benchmarks/replay_on_server.py PROFILE OUTPUT_DIR`, with the profile of a sweep on this machine. The
engine had one core there (`VLLM_CPU_OMP_THREADS_BIND=0`), as the servers have here; front end and client use the other.
Servers of no speculation, the profile's fixed K and its table are alive together, and take turns in the order A B C C B
A for each trace. Traces differ in arrivals only: steady (evenly apart), bursty (ten at once), rollout (all at once). A
text ends where the model or its own limit ends it, and the lengths that came out are what is replayed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median

import numpy as np
from arms import pasted, sitting, turns
from streaming import Stream, asked

from dsd_tune.engines.vllm_server import VllmServer
from dsd_tune.model.choices import NO_SPECULATION, Choice, choices
from dsd_tune.model.recalled import surface_of
from dsd_tune.records.trace import Request
from dsd_tune.replay import replay
from dsd_tune.storage import formats
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

LIMITS = (32, 64, 96, 128, 160, 192)
"""Most output tokens of the first request, the second, ..., and again from the first."""

REQUESTS = 40
TRACES = {
    "steady": [0.5 * n for n in range(REQUESTS)],
    "bursty": [5.0 * (n // 10) for n in range(REQUESTS)],
    "rollout": [0.0] * REQUESTS,
}
"""When each request is sent, in seconds."""

REPEATS = 2
ENGINE_CORE, OTHER_CORE = "0", "1"


def main() -> None:
    """Serve, replay, compare."""
    profile_path, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True)
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ENGINE_CORE
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    profile = formats.read(formats.PROFILE, profile_path)
    assert profile.request is not None
    model, prompts = profile.request.model, [prompt.text for prompt in load_prompts(prepare(print).prompts)]
    texts = [prompts[n % len(prompts)] for n in range(REQUESTS)]
    with sitting(profile, pasted(profile), out) as servers:
        for server in servers.values():
            play(server, model, texts, TRACES["rollout"])
        prefill = prefill_tokens_per_s(servers[NO_SPECULATION], model, prompts)
        served = {name: take_turns(servers, model, texts, arrivals) for name, arrivals in TRACES.items()}
    print(f"prefill: {prefill:.0f} tokens a second")
    surface = surface_of(profile, np.random.default_rng(0))
    known = choices(surface, profile.request.max_num_seqs, profile.decision.table).known
    raw = {name: compare(name, runs, [c for c in known if c.name in runs], prefill) for name, runs in served.items()}
    (out / "replay_on_server.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def take_turns(
    servers: Mapping[str, VllmServer], model: str, texts: Sequence[str], arrivals: Sequence[float]
) -> dict[str, list[list[Stream]]]:
    """What clients of each server saw of one trace, once a repeat."""
    order = list(servers)
    random.Random(str(arrivals)).shuffle(order)
    runs: dict[str, list[list[Stream]]] = {name: [] for name in order}
    for name in turns(order, REPEATS):
        runs[name].append(play(servers[name], model, texts, arrivals))
    return runs


def play(server: VllmServer, model: str, texts: Sequence[str], arrivals: Sequence[float]) -> list[Stream]:
    """Send each text when it is due, and wait for all."""
    streams = [Stream() for _ in texts]
    began = time.perf_counter()
    with ThreadPoolExecutor(len(texts)) as pool:
        for number, (stream, text, due) in enumerate(zip(streams, texts, arrivals, strict=True)):
            time.sleep(max(0.0, began + due - time.perf_counter()))
            body = asked(model, text, LIMITS[number % len(LIMITS)])
            pool.submit(stream.listen, server.url, "/v1/chat/completions", body)
    return streams


def prefill_tokens_per_s(server: VllmServer, model: str, prompts: Sequence[str]) -> float:
    """Of long prompts made of short ones, each another; the median of five."""
    rates = []
    for n in range(5):
        stream = Stream()
        text = " ".join([*prompts[n:], *prompts[:n]])[:1500]
        stream.listen(server.url, "/v1/chat/completions", asked(model, text, 1))
        rates.append(stream.prompt_tokens / stream.completion_s)
    return median(rates)


def compare(
    trace: str, runs: Mapping[str, list[list[Stream]]], known: Sequence[Choice], prefill: float
) -> dict[str, object]:
    """Print one line a choice, and return the numbers: all done, mean completion and mean TPOT, in seconds."""
    raw: dict[str, object] = {}
    print(f"{trace}: measured, foretold and error of the time until all is done, mean completion, mean TPOT")
    for choice in known:
        first = runs[choice.name][0]
        came = [Request(due, s.prompt_tokens, s.tokens[-1]) for due, s in zip(TRACES[trace], first, strict=True)]
        told = replay([choice], came, prefill).choices[0]
        assert told.tpot_s is not None
        foretold = [told.finished_s.value, told.completion_s.mean.value, told.tpot_s.mean.value]
        seen = [summary(run) for run in runs[choice.name]]
        means = [fmean(column) for column in zip(*seen, strict=True)]
        cells = [f"{m:.4g} {f:.4g} ({f / m - 1:+.1%})" for m, f in zip(means, foretold, strict=True)]
        print(f"  {choice.name:<14} {'; '.join(cells)}", flush=True)
        raw[choice.name] = {"measured": seen, "foretold": foretold}
    return raw


def summary(run: Sequence[Stream]) -> list[float]:
    """When all was done, mean completion time and mean TPOT."""
    begun = min(stream.sent_s for stream in run)
    tpots = [stream.tpot_s for stream in run if len(stream.tokens) > 1]
    return [max(s.at_s[-1] for s in run) - begun, fmean(s.completion_s for s in run), fmean(tpots)]


if __name__ == "__main__":
    main()
