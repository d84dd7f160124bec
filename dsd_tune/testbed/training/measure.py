"""Measure a drafter's acceptance in real vLLM on the held-out prompts, at temperature 0.

Run as ``python -m dsd_tune.testbed.training.measure {eagle,eagle3} TARGET DRAFTER``; prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsd_tune.testbed.training import prompts
from dsd_tune.testbed.training.corpus import MAX_MODEL_LEN, MAX_NEW_TOKENS, chat_ids

DEPTH = 4
RESAMPLES = 2000
SEED = 20261129


@dataclass(frozen=True, slots=True)
class Counts:
    """Per prompt: draft steps (prompts,), and how many of them accepted at least ``i + 1`` drafts (prompts, DEPTH)."""

    steps: Any
    accepted: Any

    def __post_init__(self) -> None:
        """Reject counts that do not belong together."""
        if self.accepted.shape != (len(self.steps), DEPTH) or len(self.steps) < 2:
            raise ValueError("acceptance needs at least two prompts, and one row of counts for each")


def table(counts: Counts) -> str:
    """Return a Markdown table of acceptance by position and of AL by K, with 95 % intervals over prompts.

    A position's acceptance is conditional on its predecessors; AL(K) follows because a draft does not depend on K.
    """
    rng = np.random.default_rng(SEED)
    picks = rng.integers(len(counts.steps), size=(RESAMPLES, len(counts.steps)))
    resampled = np.array([_statistics(counts, pick) for pick in picks])
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    point = _statistics(counts, np.arange(len(counts.steps)))
    names = [f"acceptance at position {i + 1}" for i in range(DEPTH)]
    names += [f"AL at K={i + 1}" for i in range(DEPTH)]
    lines = ["| | measured | 95 % interval |", "|---|---|---|"]
    lines += [
        f"| {name} | {value:.3f} | {a:.3f} to {b:.3f} |"
        for name, value, a, b in zip(names, point, low, high, strict=True)
    ]
    return "\n".join(lines)


def measure(target: Path, drafter: Path, method: str, limit: int) -> Counts:
    """Answer the first ``limit`` shipped held-out prompts with K=DEPTH, and count what was accepted."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(target),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=32,
        disable_log_stats=True,
        speculative_config={"method": method, "model": str(drafter), "num_speculative_tokens": DEPTH},
    )
    texts = [p for p in prompts.read() if p.split == "held_out"][:limit]
    tally = _Tally(llm.llm_engine.engine_core.engine_core.scheduler)
    tokenizer = llm.get_tokenizer()
    params = SamplingParams(temperature=0.0, max_tokens=MAX_NEW_TOKENS)
    inputs = [{"prompt_token_ids": chat_ids(tokenizer, p.prompt)} for p in texts]
    llm.generate(inputs, params, use_tqdm=False)
    return tally.counts()


class _Tally:
    """Counts accepted drafts by request, at the one place where the scheduler learns of them."""

    def __init__(self, scheduler: Any) -> None:
        self._rows: dict[str, list[int]] = {}
        self._update = scheduler.update_from_output
        scheduler.update_from_output = self._observe

    def _observe(self, scheduled: Any, output: Any) -> Any:
        for name, drafts in scheduled.scheduled_spec_decode_tokens.items():
            if len(drafts) == DEPTH:
                sampled = output.sampled_token_ids[output.req_id_to_index[name]]
                row = self._rows.setdefault(name, [0] * (DEPTH + 1))
                row[0] += 1
                for position in range(len(sampled) - 1):
                    row[position + 1] += 1
        return self._update(scheduled, output)

    def counts(self) -> Counts:
        rows = np.array(list(self._rows.values()))
        return Counts(rows[:, 0], rows[:, 1:])


def _statistics(counts: Counts, pick: Any) -> Any:
    reached = counts.accepted[pick].sum(axis=0) / counts.steps[pick].sum()
    return np.concatenate([reached / np.concatenate([[1.0], reached[:-1]]), 1 + np.cumsum(reached)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=("eagle", "eagle3"))
    parser.add_argument("target", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--limit", type=int, default=192)
    args = parser.parse_args()
    sys.stdout.write(table(measure(args.target, args.drafter, args.method, args.limit)) + "\n")


if __name__ == "__main__":
    main()
