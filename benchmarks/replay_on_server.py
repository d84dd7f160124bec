"""A rollout on real servers, and what `replay` foretells of it: prints both, and the error.

Run as `python benchmarks/replay_on_server.py PROFILE [REQUESTS]`, with the profile of a sweep on this machine. The
arms (no speculation, the fixed K and the table of the profile) are served one after the other and again in reverse
order. In each server a rollout that is not counted comes first. All requests are sent at once; a text ends where the
model or its own limit ends it, and the lengths that came out are what is replayed.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from urllib.request import ProxyHandler, build_opener
from urllib.request import Request as HttpRequest

import numpy as np

from dsd_tune.engines.vllm_server import VllmServer, vllm_server
from dsd_tune.model.choices import NO_SPECULATION, TABLE, choices
from dsd_tune.model.recalled import surface_of
from dsd_tune.records.profile import Profile
from dsd_tune.records.trace import Request
from dsd_tune.replay import replay
from dsd_tune.storage import formats
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

LIMITS = (32, 64, 96, 128, 160, 192)
"""Most output tokens of the first request, the second, ..., and again from the first."""

_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True, slots=True)
class Served:
    """One request as it went."""

    prompt_tokens: int
    output_tokens: int
    completion_s: float


def complete(server: VllmServer, model: str, prompt: str, limit: int) -> Served:
    """Send one request and wait for its last token."""
    body = {"model": model, "prompt": prompt, "max_tokens": limit, "temperature": 0}
    request = HttpRequest(  # noqa: S310 (our own loopback)
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began = time.monotonic()
    with _open(request, timeout=600) as answer:
        usage = json.load(answer)["usage"]
    return Served(usage["prompt_tokens"], usage["completion_tokens"], time.monotonic() - began)


def rollout(server: VllmServer, model: str, prompts: list[str]) -> list[Served]:
    """All prompts at once."""
    limits = [LIMITS[n % len(LIMITS)] for n in range(len(prompts))]
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda pair: complete(server, model, *pair), zip(prompts, limits, strict=True)))


def prefill_tokens_per_s(server: VllmServer, model: str, prompts: list[str]) -> float:
    """Of long prompts made of short ones, each another, so that no cache helps; the median of five."""
    long = [" ".join(prompts[n:] + prompts[:n])[:3000] for n in range(5)]
    found = [complete(server, model, prompt, 1) for prompt in long]
    return float(np.median([one.prompt_tokens / one.completion_s for one in found]))


def configs(profile: Profile) -> dict[str, list[str]]:
    """What each arm's server gets besides the flags of the sweep."""
    assert profile.request is not None
    assert profile.decision.table is not None
    drafter, table = json.loads(profile.request.speculative_config), profile.decision.table
    fixed = drafter | {"num_speculative_tokens": profile.decision.fixed_k}
    by_table = drafter | {
        "num_speculative_tokens": table.k_max,
        "num_speculative_tokens_per_batch_size": table.as_lists(),
    }
    named = {f"K={profile.decision.fixed_k}": fixed, TABLE: by_table}
    return {NO_SPECULATION: []} | {name: ["--speculative-config", json.dumps(c)] for name, c in named.items()}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Serve, replay, compare."""
    profile = formats.read(formats.PROFILE, Path(sys.argv[1]))
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    assert profile.request is not None
    prompts = [prompt.text for prompt in load_prompts(prepare(print).prompts)][:count]
    servers = configs(profile)
    served: dict[str, list[list[Served]]] = defaultdict(list)
    rates = []
    for name in [*servers, *reversed(servers)]:
        flags = ["--max-num-seqs", str(profile.request.max_num_seqs), *profile.request.engine_flags, *servers[name]]
        with vllm_server(profile.request.model, flags, free_port(), Path(sys.argv[1]).parent / "server.log") as server:
            rollout(server, profile.request.model, prompts)
            rates.append(prefill_tokens_per_s(server, profile.request.model, prompts))
            served[name].append(rollout(server, profile.request.model, prompts))
            print(name, f"done after {max(one.completion_s for one in served[name][-1]):.1f} s", flush=True)
    surface = surface_of(profile, np.random.default_rng(0))
    known = choices(surface, profile.request.max_num_seqs, profile.decision.table).known
    prefill = float(np.median(rates))
    print(f"prefill: {prefill:.0f} tokens a second")
    for choice in known:
        if runs := served.get(choice.name):
            requests = [Request(0.0, one.prompt_tokens, one.output_tokens) for one in runs[0]]
            told = replay([choice], requests, prefill).choices[0]
            done = [max(one.completion_s for one in run) for run in runs]
            mean = [fmean(one.completion_s for one in run) for run in runs]
            numbers = told.finished_s, told.completion_s.mean
            for what, seen, foretold in zip(("all done", "mean completion"), (done, mean), numbers, strict=True):
                print(
                    f"{choice.name}: {what} {fmean(seen):.2f} s ({', '.join(f'{s:.2f}' for s in seen)}), foretold "
                    f"{foretold.value:.2f} [{foretold.low:.2f}, {foretold.high:.2f}], "
                    f"error {foretold.value / fmean(seen) - 1:+.1%}"
                )


if __name__ == "__main__":
    main()
