"""A rollout on real servers: how long until the last token, without speculation, at the fixed K, by table, by goodput?

Run as `python benchmarks/rollout.py PROFILE -o DIR`, with the profile of a sweep on this machine. All requests are sent
at once; their lengths are drawn once from a long-tailed distribution, and each runs to its own, so every turn makes the
same number of tokens. The servers of a sitting are alive together and take turns (A B B A); the next sitting starts new
ones. The start of a server is the unit of the interval, because its luck lasts as long as it lives.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from arms import pasted, ratio, sitting, told, turns, under_policy
from clients import all_at_once, chat

from dsd_tune.model.choices import NO_SPECULATION
from dsd_tune.records.profile import Profile
from dsd_tune.storage import formats
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

MEDIAN, SPREAD, SHORTEST, LONGEST = 64, 0.9, 8, 512
"""Output tokens: lognormal, as answers of reasoning models are, and cut off at both ends."""

Ask = tuple[str, int]


def main() -> None:
    """Measure sitting after sitting, each written down before the next, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="for logs and raw numbers")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--sittings", type=int, default=4, help="starts of each server; 2 for an interval")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each server in a sitting")
    asked = parser.parse_args()
    profile = formats.read(formats.PROFILE, asked.profile)
    asks = rollout(asked.requests, np.random.default_rng(0))
    tokens = sum(limit for _, limit in asks)
    print(f"{len(asks)} requests, {tokens} tokens, the longest {max(limit for _, limit in asks)}", flush=True)
    sittings = []
    for number in range(asked.sittings):
        sittings.append(sit(profile, asks, asked.rounds, asked.output_dir / f"sitting-{number}"))
        raw = json.dumps({"asks": asks, "seconds": sittings}, indent=1)
        (asked.output_dir / "rollout.json").write_text(raw + "\n", encoding="utf-8")
    compare(sittings)


def rollout(count: int, random: np.random.Generator) -> list[Ask]:
    """Prompts of the testbed with output lengths, the first prompt again where there are too few."""
    prompts = load_prompts(prepare(print).prompts)
    lengths = np.clip(random.lognormal(np.log(MEDIAN), SPREAD, count), SHORTEST, LONGEST).astype(int).tolist()
    return [(prompts[n % len(prompts)].text, length) for n, length in enumerate(lengths)]


def sit(profile: Profile, asks: list[Ask], rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds to the last token, by arm, of each turn."""
    assert profile.request is not None
    model = profile.request.model
    folder.mkdir(parents=True, exist_ok=True)
    arms = {**pasted(profile), "goodput": under_policy(profile, folder / "profile.json", "goodput")}
    seconds: dict[str, list[float]] = defaultdict(list)
    with sitting(profile, arms, folder) as servers:
        for server in servers.values():
            all_at_once(partial(chat, server.url, model, words, SHORTEST) for words, _ in asks)
        for name in turns(list(arms), rounds):
            served = all_at_once(partial(chat, servers[name].url, model, words, limit) for words, limit in asks)
            seconds[name].append(max(one.completion_s for one in served))
            print(f"{folder.name}: {name} done after {seconds[name][-1]:.1f} s", flush=True)
    return dict(seconds)


def compare(sittings: list[dict[str, list[float]]]) -> None:
    """Every arm against no speculation, start by start."""
    means = {name: [fmean(sitting[name]) for sitting in sittings] for name in sittings[0]}
    for name, seconds in means.items():
        print(f"{name}: {fmean(seconds):.1f} s")
        if name != NO_SPECULATION and len(sittings) > 1:
            print(f"  {told(ratio(means[NO_SPECULATION], seconds))} of the time without speculation")


if __name__ == "__main__":
    main()
