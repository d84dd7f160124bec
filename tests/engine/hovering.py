"""Run as a script: one in-process engine, the same hovering load under no drafts, the table, and hysteresis.

Takes the folders of target and drafter; prints, by policy, steps, switches of K and the texts, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count, pairwise
from typing import Any

from dsd_tune.records.table import Table
from dsd_tune.runtime.guard import Guard
from dsd_tune.runtime.options import say
from dsd_tune.runtime.policies.fixed import FixedPolicy
from dsd_tune.runtime.policies.hysteresis import HysteresisPolicy
from dsd_tune.runtime.policies.table import TablePolicy
from dsd_tune.runtime.policy import Policy
from dsd_tune.runtime.steering import steer

TABLE = Table.from_dense([3, 3, 3, 3, 0, 0, 0, 0])
REQUESTS = 60
TOKENS = (24, 31, 40, 17)
CLIENTS = 5
THINKS = 3


def main(target: str, drafter: str) -> None:
    """Serve the load three times."""
    scheduler, engine = started(target, drafter)
    policies: dict[str, Policy] = {
        "none": FixedPolicy(0),
        "table": TablePolicy(TABLE),
        "hysteresis": HysteresisPolicy(TABLE, ()),
    }
    advance = scheduler._update_after_schedule
    results = {}
    for name, policy in policies.items():
        ks: list[int] = []

        def noting(output: Any, ks: list[int] = ks) -> None:
            ks.append(output.num_spec_tokens_to_schedule)
            advance(output)

        scheduler._update_after_schedule = noting
        steer(scheduler, Guard(policy, TABLE.ks, (0, *TABLE.dense()), say), say)
        texts = serve(engine, name)
        switches = sum(left != right for left, right in pairwise(ks))
        results[name] = {"steps": len(ks), "switches": switches, "texts": texts}
    sys.stdout.write(json.dumps(results))


def started(target: str, drafter: str) -> tuple[Any, Any]:
    """A scheduler that was started with the table, and its engine; every prefill takes several steps."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    args = EngineArgs(
        model=target,
        max_model_len=512,
        max_num_seqs=TABLE.max_num_seqs,
        max_num_batched_tokens=64,
        enforce_eager=True,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=1 << 26,
        speculative_config={
            "method": "eagle",
            "model": drafter,
            "num_speculative_tokens": TABLE.k_max,
            "num_speculative_tokens_per_batch_size": TABLE.as_lists(),
        },
    )
    engine = LLMEngine.from_engine_args(args)
    return engine.engine_core.engine_core.scheduler, engine


def serve(engine: Any, name: str) -> list[str]:
    """Five clients: who is answered thinks for a few steps, then asks again. Four or five are in each step."""
    from vllm import SamplingParams

    texts: dict[str, str] = {}
    sent: list[str] = []
    due = 0
    for step in count():
        if len(sent) < REQUESTS and len(sent) - len(texts) < CLIENTS and step >= due:
            tokens = TOKENS[len(sent) % len(TOKENS)]
            params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
            prompt = f"Tell me the story number {len(sent)} of many nights. " * 4
            sent.append(f"{name}-{len(sent)}")
            engine.add_request(sent[-1], prompt, params)
        done = [output for output in engine.step() if output.finished]
        texts |= {output.request_id: output.outputs[0].text for output in done}
        due = step + THINKS if done else due
        if len(texts) == REQUESTS:
            break
    return [texts[request] for request in sent]


if __name__ == "__main__":
    main(*sys.argv[1:])
