"""What a grid costs: `vllm bench sweep serve` against `dsd-tune sweep`, on the testbed, in one run.

Both measure B 1..32 (doubling) x K 0-4 plus no speculation, with one engine or server start a column. A run's spread
gives the relative standard error of a cell, and the time each needs for one and the same error follows from it, since
an error falls with the root of the time spent measuring. Both see the same prompts at temperature 0.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dsd_tune.cli.request import TESTBED_FLAGS
from dsd_tune.records.measurement import Block
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.testbed.prepare import Testbed, prepare

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
KS = (0, 1, 2, 3, 4)
OUTPUT_TOKENS = 64
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Cost:
    """What one tool spent, and how far its repeats scatter: `error` is the median cell's relative standard error."""

    tool: str
    wall_s: float
    start_s: float
    cells: int
    repeats: int
    error: float

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
    blocks = [s for s in RunDirectory.open(out).samples() if isinstance(s, Block)]
    values = defaultdict(list)
    for block in blocks:
        if block.stop == block.cell.batch_size:
            values[block.cell].append(statistics.median(block.step_s))
    first = min(block.taken_at_s for block in blocks)
    return Cost("dsd-tune sweep", wall_s, first - began, len(values), rounds, median_error(values.values()))


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
    cells = [json.loads(path.read_text()) for path in sorted(out.glob("grid/**/summary.json"))]
    values = [[run["mean_tpot_ms"] for run in runs] for runs in cells]
    measuring_s = sum(run["duration"] for runs in cells for run in runs)
    return Cost("vllm bench sweep serve", wall_s, wall_s - measuring_s, len(cells), num_runs, median_error(values))


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


def median_error(cells: Iterable[list[float]]) -> float:
    """The relative standard error of the mean in the median cell, from the scatter of its repeats."""
    return statistics.median(statistics.stdev(v) / statistics.mean(v) / len(v) ** 0.5 for v in cells)


def report(ours: Cost, theirs: Cost) -> None:
    """Print both, as they ran and brought to one error."""
    print(f"{'':24} {'wall s':>8} {'starts s':>9} {'cells':>6} {'repeats':>8} {'error':>7} {'wall s at ours':>15}")
    for cost in (theirs, ours):
        print(
            f"{cost.tool:24} {cost.wall_s:8.0f} {cost.start_s:9.0f} {cost.cells:6} {cost.repeats:8} "
            f"{cost.error:7.2%} {cost.wall_for(ours.error):15.0f}"
        )
    print(f"ratio at the same error: {theirs.wall_for(ours.error) / ours.wall_s:.1f}")


if __name__ == "__main__":
    main()
