"""What a grid costs: `vllm bench sweep serve` against `dsd-tune sweep`, on the testbed, in one run.

Both measure B 1..32 (doubling) x K 0-4 plus no speculation, with one engine or server start a column, on the same
prompts at temperature 0. A cell's relative standard error of TPOT has two parts: time, from the scatter of its repeats,
and text, from the scatter of requests (which repeats do not show, since they send the same prompts) or of prompts (over
all batch sizes, where acceptance is pooled). The time each tool needs for one and the same error follows from it, since
an error falls with the root of the time spent measuring.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from dsd_tune.cli.request import TESTBED_FLAGS
from dsd_tune.fit import Fit
from dsd_tune.records.measurement import Block
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.testbed.prepare import Testbed, prepare

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
KS = (0, 1, 2, 3, 4)
OUTPUT_TOKENS = 64
AIM = 0.03
"""The difference that people act on."""
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Cost:
    """What one tool spent; `errors` holds each cell's relative standard error of TPOT, the part of time and of text."""

    tool: str
    wall_s: float
    start_s: float
    repeats: int
    errors: dict[str, tuple[float, float]]

    @property
    def error(self) -> float:
        """That of the median cell."""
        return statistics.median(math.hypot(*parts) for parts in self.errors.values())

    def wall_for(self, error: float) -> float:
        """Seconds to reach `error` a cell: starts once, measuring as often as it takes."""
        return self.start_s + (self.wall_s - self.start_s) * (self.error / error) ** 2


def main() -> None:
    """Measure both, print a table, and leave the raw numbers in a JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output-dir", type=Path, required=True, help="a new directory for everything measured")
    parser.add_argument("--num-runs", type=int, default=2, help="repeats of `vllm bench sweep serve`")
    parser.add_argument("--rounds", type=int, default=6, help="repeats of `dsd-tune sweep`")
    asked = parser.parse_args()
    asked.output_dir.mkdir(parents=True)
    ready = prepare(lambda line: print(line, file=sys.stderr))
    ours = dsd_tune_sweep(asked.output_dir / "dsd-tune", asked.rounds)
    theirs = vllm_bench_sweep(ready, asked.output_dir / "vllm-bench", asked.num_runs)
    report(ours, theirs)
    raw = {cost.tool: asdict(cost) for cost in (ours, theirs)}
    (asked.output_dir / "sweep_cost.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def dsd_tune_sweep(out: Path, rounds: int) -> Cost:
    """One start an arm, `rounds` blocks a cell."""
    flags = ["--batch-sizes", ",".join(map(str, BATCH_SIZES)), "--max-k", str(KS[-1])]
    command = [str(BIN / "dsd-tune"), "sweep", "--testbed", "-o", str(out), "--starts", "1", "--rounds", str(rounds)]
    began = time.time()
    # With a target that anything meets, the anchors are all that is measured.
    subprocess.run([*command, *flags, "--target-regret", "99%"], check=True)
    wall_s = time.time() - began
    run = RunDirectory.open(out)
    surface = Fit(run.manifest, run.samples()).surface
    text = dict(zip(surface.ks, surface.log_tokens.draws.std(axis=0).tolist(), strict=True))
    blocks = [s for s in run.samples() if isinstance(s, Block)]
    values = defaultdict(list)
    for block in blocks:
        if block.stop == block.cell.batch_size:
            values[block.cell].append(statistics.median(block.step_s))
    errors = {str(cell): (of_mean(times), text[cell.k]) for cell, times in values.items()}
    first = min(block.taken_at_s for block in blocks)
    return Cost("dsd-tune sweep", wall_s, first - began, rounds, errors)


def vllm_bench_sweep(ready: Testbed, out: Path, num_runs: int) -> Cost:
    """A server restart for each K, client concurrency in place of batch size: today's practice."""
    out.mkdir()
    serve, bench = out / "serve.json", out / "bench.json"
    serve.write_text(json.dumps([{"_benchmark_name": name, **flags} for name, flags in columns(ready).items()]))
    bench.write_text(
        json.dumps([{"max_concurrency": b, "num_prompts": max(4, 2 * b), "num_warmups": b} for b in BATCH_SIZES])
    )
    server = [str(BIN / "vllm"), "serve", str(ready.target), "--max-num-seqs", str(BATCH_SIZES[-1]), *TESTBED_FLAGS]
    client = [str(BIN / "vllm"), "bench", "serve", "--model", str(ready.target), "--dataset-name", "custom"]
    client += ["--dataset-path", str(ready.prompts), "--custom-output-len", str(OUTPUT_TOKENS), "--ignore-eos"]
    command = [str(BIN / "vllm"), "bench", "sweep", "serve", "--num-runs", str(num_runs), "-o", str(out), "-e", "grid"]
    command += ["--serve-cmd", shlex.join(server), "--bench-cmd", shlex.join([*client, "--temperature", "0"])]
    began = time.time()
    subprocess.run([*command, "--serve-params", str(serve), "--bench-params", str(bench)], check=True)
    wall_s = time.time() - began
    cells = {path.parent.name: json.loads(path.read_text()) for path in sorted(out.glob("grid/**/summary.json"))}
    measuring_s = sum(run["duration"] for runs in cells.values() for run in runs)
    errors = {name: of_runs(runs) for name, runs in cells.items()}
    return Cost("vllm bench sweep serve", wall_s, wall_s - measuring_s, num_runs, errors)


def of_runs(runs: list[dict[str, float]]) -> tuple[float, float]:
    """The parts of the error of a cell that `vllm bench serve` measured in `runs`, each with the same requests."""
    text = statistics.mean(run["std_tpot_ms"] / run["mean_tpot_ms"] / run["completed"] ** 0.5 for run in runs)
    return of_mean([run["mean_tpot_ms"] for run in runs]), text


def columns(ready: Testbed) -> dict[str, dict[str, object]]:
    """One server a column; K=0 needs a table, since vLLM has no fixed K of 0."""
    drafter = {"method": "eagle3", "model": str(ready.eagle3)}
    fixed = {f"k{k}": {**drafter, "num_speculative_tokens": k} for k in KS if k}
    table = {
        **drafter,
        "num_speculative_tokens": 1,
        "num_speculative_tokens_per_batch_size": [[1, BATCH_SIZES[-1], 0]],
    }
    speculative = {"k0": table, **fixed}
    return {"no_spec": {}, **{name: {"speculative_config": config} for name, config in speculative.items()}}


def of_mean(values: list[float]) -> float:
    """The relative standard error of the mean of `values`."""
    return statistics.stdev(values) / statistics.mean(values) / len(values) ** 0.5


def report(ours: Cost, theirs: Cost) -> None:
    """Print both, as they ran and brought to the error that is good enough, and to that of either."""
    print(f"{'':24} {'wall s':>8} {'starts s':>9} {'cells':>6} {'repeats':>8} {'error':>7}")
    for cost in (theirs, ours):
        spent = f"{cost.wall_s:8.0f} {cost.start_s:9.0f} {len(cost.errors):6} {cost.repeats:8}"
        print(f"{cost.tool:24} {spent} {cost.error:7.2%}")
    for error in (AIM, theirs.error, ours.error):
        spent = theirs.wall_for(error), ours.wall_for(error)
        print(f"to an error of {error:.2%}: {spent[0]:.0f} s against {spent[1]:.0f} s, {spent[0] / spent[1]:.1f} times")


if __name__ == "__main__":
    main()
