"""How long `dsd-tune replay` takes for a million requests on one core, and how much memory: prints both.

Run as `python benchmarks/replay_speed.py [REQUESTS]`. The grid is a published one (Qwen3-32B, K up to 5, batch sizes up
to 256), so that seven choices of K are replayed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

GRID = Path(__file__).parents[1] / "tests/data/imports/grids/rl_qwen3_32b_openmath_gb200.csv"
REQUESTS_PER_S = 20.0


def dsd_tune(*words: object) -> None:
    """Run a command; its answer goes nowhere."""
    subprocess.run([sys.executable, "-m", "dsd_tune", *map(str, words)], check=True, capture_output=True)


def write_trace(path: Path, requests: int) -> None:
    """Random arrivals, geometric lengths."""
    rng = np.random.default_rng(0)
    arrivals = rng.exponential(1 / REQUESTS_PER_S, requests).cumsum().tolist()
    prompts, outputs = rng.geometric(1 / 500, requests).tolist(), rng.geometric(1 / 200, requests).tolist()
    with path.open("w") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        file.writelines(f"{a:.4f},{p},{o}\n" for a, p, o in zip(arrivals, prompts, outputs, strict=True))


def main() -> None:
    """Import, fit, replay, and say what the last took."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        run, trace = Path(folder) / "run", Path(folder) / "trace.csv"
        write_trace(trace, requests)
        dsd_tune("import", GRID, "--arm", "static", "--k0", "no_spec", "-o", run)
        dsd_tune("fit", run)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        dsd_tune("replay", run / "profile.json", "--trace", trace, "--prefill-tokens-per-s", 100_000)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(f"{requests} requests: {seconds:.0f} s of one core, {after.ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()
