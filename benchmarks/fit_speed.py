"""How long `fit`, `emit-config` and `check` take on a grid of 256 batch sizes and 9 Ks: prints the quickest of a few.

Run as `python benchmarks/fit_speed.py [REPEATS]`. Every time is that of a whole process, imports included; where the
machine has other work, that of its processor tells more. The grid is invented: a step grows with the tokens in flight,
and every number scatters by 1 %.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BATCH_SIZES, KS = range(1, 257), range(9)
ACCEPTED = 0.75
"""Share of steps in which a position is accepted, given that all before it were."""

CONFIG = '{"method":"eagle3","model":"d","num_speculative_tokens":3}'


def dsd_tune(*words: object) -> tuple[float, float]:
    """Seconds that a command took, and of a processor; its answer goes nowhere, and its exit code is a verdict."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "dsd_tune", *map(str, words)], capture_output=True, check=False)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if b"Traceback" in done.stderr or done.returncode == 2:
        raise SystemExit(done.stderr.decode())
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def write_grid(path: Path) -> None:
    """A row a cell."""
    rng = np.random.default_rng(0)
    lines = ["batch_size,k,step_ms,acceptance_length"]
    for batch_size in BATCH_SIZES:
        for k in KS:
            in_flight = batch_size * (k + 1)
            step_ms = 10 + 0.03 * batch_size + 0.6 * k + 0.02 * max(0, in_flight - 300)
            length = f"{sum(ACCEPTED**position for position in range(k + 1)):.4f}" if k else ""
            lines.append(f"{batch_size},{k},{step_ms * np.exp(rng.normal(0, 0.01)):.4f},{length}")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Import once, then time each command."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        grid, run = Path(folder) / "grid.csv", Path(folder) / "run"
        write_grid(grid)
        dsd_tune("import", grid, "--arm", "dsd", "--k0", "no_spec", "-o", run)
        commands = {
            "fit": ("fit", run),
            "emit-config": ("emit-config", run / "profile.json"),
            "check": ("check", "--speculative-config", CONFIG, "--max-num-seqs", 256, "--vllm-version", "0.32"),
        }
        for name, words in commands.items():
            seconds, of_processor = min(dsd_tune(*words) for _ in range(repeats))
            print(f"{name}: {seconds:.2f} s, {of_processor:.2f} s of a processor")


if __name__ == "__main__":
    main()
