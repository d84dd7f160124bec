"""Real HTTP load by `vllm bench serve`: streaming requests at a fixed concurrency against a server that is running."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dsd_tune.engines.leash import leashed
from dsd_tune.engines.vllm_log import last_words
from dsd_tune.engines.vllm_server import vllm_command
from dsd_tune.errors import EngineFailed

PATIENCE_S = 3600.0
SLOWEST_S = 2.0
"""No server that anyone would wait for takes longer for a token of each client."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What to ask of a server: `requests` of `output_tokens` at most, `concurrency` of them at a time.

    `prompts` is a JSONL file with one `prompt` a line; a load begins with its first. `chat` puts the model's chat
    template around each prompt. The model is the first that the server names: its flags may call it anything.
    """

    tokenizer: str
    prompts: Path
    concurrency: int
    requests: int
    output_tokens: int
    temperature: float
    chat: bool

    @property
    def limit_s(self) -> float:
        """Seconds after which it is given up: an hour, and `SLOWEST_S` for each token of a client, warm-up included."""
        texts = math.ceil(self.requests / self.concurrency) + 1
        return PATIENCE_S + SLOWEST_S * texts * self.output_tokens


def bench(url: str, order: LoadOrder, result: Path) -> Mapping[str, Any]:
    """Run one load, and as many requests before it as are served at once, which are not counted.

    `result` keeps vLLM's own JSON; beside it lies a log.

    Raises:
        EnvironmentUnfit: there is no `vllm` command beside this Python.
        EngineFailed: the load did not finish, or left no result.
    """
    log = result.with_suffix(".log")
    command = leashed(_command(url, order, result))
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=_environment(url),
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(order.limit_s)
        except subprocess.TimeoutExpired as error:
            raise EngineFailed(
                f"vllm bench serve took more than {order.limit_s:.0f} s for {order.requests} requests of up to "
                f"{order.output_tokens} tokens, {order.concurrency} at a time.",
                f"Ask for less (--duration, --output-len), or look for what holds the server; the log is {log}.",
            ) from error
        finally:
            if process.stdin is not None:
                process.stdin.close()
    if code or not result.exists():
        raise EngineFailed(f"vllm bench serve failed. {last_words(log)}", f"Its log is {log}.")
    document: Mapping[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return document


def _environment(url: str) -> dict[str, str]:
    """This process's, with the server's host beside what is reached without a proxy.

    vLLM's client heeds proxies of the environment, and excepts not even the loopback by itself.
    """
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    # An asterisk counts only by itself, and then for all hosts.
    direct = "*" if known == "*" else ",".join(filter(None, (known, urlsplit(url).hostname)))
    return {**os.environ, "no_proxy": direct, "NO_PROXY": direct}


def _command(url: str, order: LoadOrder, result: Path) -> list[str]:
    flags = {
        "--base-url": url,
        "--tokenizer": order.tokenizer,
        "--dataset-name": "custom",
        "--dataset-path": str(order.prompts),
        "--custom-output-len": str(order.output_tokens),
        "--num-prompts": str(order.requests),
        "--num-warmups": str(order.concurrency),
        "--max-concurrency": str(order.concurrency),
        "--temperature": str(order.temperature),
        "--percentile-metrics": "ttft,tpot",
        "--metric-percentiles": "99",
        "--result-dir": str(result.parent),
        "--result-filename": result.name,
        "--extra-body": json.dumps(_body(order)),
    }
    template = [] if order.chat else ["--skip-chat-template"]
    # Texts end where the model ends them, as in production and in a sweep: behind its end a drafter sees no language.
    switches = ["--save-result", "--save-detailed", "--disable-tqdm", "--disable-shuffle", *template]
    return [str(vllm_command()), "bench", "serve", *(word for pair in flags.items() for word in pair), *switches]


def _body(order: LoadOrder) -> dict[str, object]:
    """What a request says besides, so that it is the sweep's: this wins over what vLLM's client says by itself."""
    # The client sets a penalty of 1; without one the server takes the model's own, as for anyone who sends none.
    body: dict[str, object] = {"repetition_penalty": None}
    # A template writes the special tokens itself, and the server would add them once more.
    return body | {"add_special_tokens": False} if order.chat else body


@cache
def has_chat_template(model: str) -> bool:
    """Whether a model's tokenizer has one; the sweep sends prompts as they are if not. Asked before every load."""
    from transformers import AutoTokenizer

    return bool(getattr(AutoTokenizer.from_pretrained(model), "chat_template", None))
