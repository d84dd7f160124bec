"""Is the engine core's time what a server shows? TPOT measured in process against TPOT of a real `vllm serve`.

Both are alive at once, with one core for the engine each time (VLLM_CPU_OMP_THREADS_BIND) and the other for the
server's front end and client, and take turns in A B B A order, so that the machine's drift falls on both alike. The
server's TPOT is what a streaming client sees while exactly B requests decode: seconds between the moment when all have
begun and the first end, times B, over the tokens that came in between. The two sides decode other prompts, so TPOT's
ratio is split into step time, which must agree, and acceptance length, which differs by the luck of the text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from arms import ratio, told
from streaming import Stream, asked

from dsd_tune.cli.request import TESTBED_FLAGS
from dsd_tune.engines.protocol import Measured, RunningEngine
from dsd_tune.engines.vllm_engine import VllmEngine
from dsd_tune.engines.vllm_server import VllmServer, vllm_server
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm
from dsd_tune.records.prompt import Prompt
from dsd_tune.storage.prompts import load_prompts
from dsd_tune.testbed.prepare import prepare

BATCH_SIZES = (1, 4, 16)
TOKENS = 96
STEPS = 24
CONDITION = Condition(512, 0.0)
ENGINE_CORE, OTHER_CORE = "0", "1"


def main() -> None:
    """Alternate the two for each K and batch size, and print their ratios with intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", "--ks", default="0,2", help="fixed K; 0 is no speculation")
    parser.add_argument("--rounds", type=int, default=4, help="A B B A rounds")
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="for logs and raw numbers")
    asked = parser.parse_args()
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ENGINE_CORE
    os.sched_setaffinity(0, {int(OTHER_CORE)})
    rows = [row for k in map(int, asked.ks.split(",")) for row in compare(k, asked.rounds, asked.output_dir)]
    (asked.output_dir / "served.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(k: int, rounds: int, out: Path) -> Iterator[dict[str, object]]:
    """One line for each batch size; both sides stay alive throughout."""
    ready = prepare(lambda line: print(line, file=sys.stderr))
    prompts = load_prompts(ready.prompts)
    config = {"method": "eagle3", "model": str(ready.eagle3)}
    flags = [*TESTBED_FLAGS, "--max-num-seqs", str(BATCH_SIZES[-1])]
    if k:
        flags += ["--speculative-config", json.dumps({**config, "num_speculative_tokens": k})]
    engine = VllmEngine(
        model=str(ready.target),
        speculative_config=config,
        ks=tuple(range(max(k, 1) + 1)),
        max_num_seqs=BATCH_SIZES[-1],
        conditions=(CONDITION,),
        prompts=prompts,
        seed=0,
        engine_flags=TESTBED_FLAGS,
        log_dir=out / f"k{k}",
    )
    with ExitStack() as stack:
        running = engine.start(Arm.STATIC, k) if k else engine.start(Arm.NO_SPEC)
        stack.callback(running.close)
        server = stack.enter_context(vllm_server(str(ready.target), flags, 8011, out / f"k{k}" / "server.log"))
        for batch_size in BATCH_SIZES:
            yield alternate(k, batch_size, rounds, running, lambda b: served(server, str(ready.target), prompts, b))


def alternate(
    k: int, batch_size: int, rounds: int, engine: RunningEngine, serve: Callable[[int], tuple[float, float]]
) -> dict[str, object]:
    """A B B A, the first pair thrown away as warm-up."""
    inside: list[tuple[float, float]] = []
    outside: list[tuple[float, float]] = []
    for turn in range(rounds + 1):
        order = (inside, outside) if turn % 2 == 0 else (outside, inside)
        for side in order:
            side.append(measured(engine, batch_size, k) if side is inside else serve(batch_size))
    row: dict[str, object] = {"k": k, "batch_size": batch_size, "rounds": rounds, "inside": inside, "outside": outside}
    tpot, length = ([[turn[i] for turn in side[1:]] for side in (inside, outside)] for i in (0, 1))
    step = [[t * n for t, n in zip(*side, strict=True)] for side in zip(tpot, length, strict=True)]
    print(
        f"K={k} B={batch_size:<3} TPOT {1000 * statistics.median(tpot[0]):6.1f} ms in process, "
        f"{1000 * statistics.median(tpot[1]):6.1f} served, ratio {told(ratio(*tpot))}; step time {told(ratio(*step))}; "
        f"acceptance length {told(ratio(*length))}",
        flush=True,
    )
    return row


def measured(engine: RunningEngine, batch_size: int, k: int) -> tuple[float, float]:
    """Step time over acceptance length, in seconds, and the acceptance length, of one block in process."""
    block: Measured = engine.measure(batch_size, k, condition=CONDITION, steps=STEPS, settle=2)
    length = sum(p.tokens for p in block.prompts) / sum(p.steps for p in block.prompts)
    return statistics.mean(block.step_s) / length, length


def served(server: VllmServer, model: str, prompts: tuple[Prompt, ...], batch_size: int) -> tuple[float, float]:
    """What clients see while exactly `batch_size` requests decode: TPOT in seconds, and tokens a chunk.

    A text that ends at once leaves too little to see, and others are asked for.
    """
    while True:
        streams = answers(server, model, prompts, batch_size)
        begin, end = max(s.at_s[0] for s in streams), min(s.at_s[-1] for s in streams)
        inside = [(sum(begin < at <= end for at in s.at_s), between(s, begin, end)) for s in streams]
        chunks, tokens = sum(c for c, _ in inside), sum(t for _, t in inside)
        if chunks >= batch_size * STEPS // 2:
            return (end - begin) * batch_size / tokens, tokens / chunks


def answers(server: VllmServer, model: str, prompts: tuple[Prompt, ...], batch_size: int) -> list[Stream]:
    """So many requests at once, each of another prompt, read to their ends."""
    take = time.time_ns() % len(prompts)
    streams = [Stream() for _ in range(batch_size)]
    with ThreadPoolExecutor(batch_size) as pool:
        for number, stream in enumerate(streams):
            text = prompts[(take + number) % len(prompts)].text
            pool.submit(stream.listen, server.url, "/v1/chat/completions", asked(model, text, TOKENS))
    return streams


def between(stream: Stream, begin_s: float, end_s: float) -> int:
    """Tokens that came after `begin_s` and up to `end_s`."""
    seen = [0, *(count for at, count in zip(stream.at_s, stream.tokens, strict=True) if at <= end_s)]
    before = [0, *(count for at, count in zip(stream.at_s, stream.tokens, strict=True) if at <= begin_s)]
    return seen[-1] - before[-1]


if __name__ == "__main__":
    main()
