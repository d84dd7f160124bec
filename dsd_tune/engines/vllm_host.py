"""Starts `vllm serve` for one arm after another, and lets `vllm bench serve` be its clients."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsd_tune.engines.scrape import Scrape
from dsd_tune.engines.vllm_bench import LoadOrder, bench, has_chat_template
from dsd_tune.engines.vllm_running import told_version
from dsd_tune.engines.vllm_server import vllm_server
from dsd_tune.errors import EngineFailed
from dsd_tune.records.prompt import Prompt
from dsd_tune.records.validation import ArmCommand, Load, ServedArm, ValidationRequest
from dsd_tune.storage.files import write_text

ENOUGH_FOR_P99 = 662
"""Requests from which a 99th percentile is known to within half a percent of its rank at 99 % (MLPerf Inference)."""


@dataclass(frozen=True, slots=True)
class VllmClient:
    """Clients of the server at `url`, which serves `arm`.

    Texts differ in what a drafter makes of them, on the testbed by 15 %. So each start sees others, and their luck is
    in the interval that starts give; all arms see the same, and no server sees one twice if there are enough.
    """

    url: str
    arm: ServedArm
    request: ValidationRequest
    texts: Sequence[Prompt]
    tokenizer: str
    directory: Path

    def load(self, concurrency: int, start: int) -> Load:
        """See `validate.Client`. vLLM's own JSON is kept."""
        order = LoadOrder(
            tokenizer=self.tokenizer,
            prompts=self._prompts(concurrency, start),
            concurrency=concurrency,
            requests=self.request.requests_at(concurrency),
            output_tokens=self.request.output_tokens,
            temperature=self.request.temperature,
            chat=has_chat_template(self.tokenizer),
        )
        taken_at_s = time.time()
        result = bench(self.url, order, self.directory / "loads" / f"{self.arm}-{start}-{concurrency}.json")
        return read_load(
            result,
            self.arm,
            start,
            concurrency,
            taken_at_s,
            counted=_counts(self.url),
            vllm_version=told_version(self.url),
        )

    def _prompts(self, concurrency: int, start: int) -> Path:
        """The file of this load: the next texts after those of the loads before it, and from the first again."""
        request = self.request
        before = start * sum(request.requests) + sum(request.requests[: request.concurrency.index(concurrency)])
        chosen = [self.texts[(before + n) % len(self.texts)] for n in range(request.requests_at(concurrency))]
        path = self.directory / "prompts" / f"{start}-{concurrency}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(json.dumps({"prompt": prompt.text}) + "\n" for prompt in chosen))
        return path


@dataclass(frozen=True, slots=True)
class VllmHost:
    """Serves on the loopback at `port`, one server at a time; logs, texts and results go to `directory`.

    Clients count with the tokenizer of the model `tokenizer`, whatever a server calls what it serves.
    """

    request: ValidationRequest
    texts: Sequence[Prompt]
    tokenizer: str
    port: int
    directory: Path

    @contextmanager
    def serve(self, command: ArmCommand, start: int) -> Iterator[VllmClient]:
        """See `validate.Host`.

        Raises:
            UsageError: the port is taken.
            EngineFailed: the server did not come up.
        """
        model, *arguments = command.arguments
        log = self.directory / "logs" / f"{command.arm}-{start}.log"
        with vllm_server(model, arguments, self.port, log, runtime=dict(command.environment)) as server:
            yield self.client(server.url, command.arm)

    def client(self, url: str, arm: ServedArm) -> VllmClient:
        """Clients of a server that is running."""
        (self.directory / "loads").mkdir(parents=True, exist_ok=True)
        return VllmClient(url, arm, self.request, self.texts, self.tokenizer, self.directory)


def _counts(url: str) -> bool:
    """Whether `vllm bench serve` can read what was drafted: a router in between may answer without metrics."""
    try:
        return Scrape.fetch(url).has("vllm:generation_tokens_total")
    except EngineFailed:
        return False


def read_load(
    result: Mapping[str, Any],
    arm: ServedArm,
    start: int,
    concurrency: int,
    taken_at_s: float,
    *,
    counted: bool,
    vllm_version: str | None,
) -> Load:
    """A load from the JSON of `vllm bench serve`, which says nothing of drafts where there were none to count.

    Raises:
        EngineFailed: it has not what every such file has, or no request was answered.
    """
    if result.get("completed") == 0:
        raise EngineFailed(
            f"No request of {arm} at concurrency {concurrency} was answered: {_complaint(result)}.",
            "Mend what the server's log says of it; the same command goes on from there.",
        )
    none = 0 if counted else None
    try:
        answered = [pair for pair in zip(result["input_lens"], result["output_lens"], strict=True) if pair[1]]
        requests = result["completed"] + result["failed"]
        enough = requests >= ENOUGH_FOR_P99
        return Load(
            arm=arm,
            start=start,
            concurrency=concurrency,
            taken_at_s=taken_at_s,
            requests=requests,
            failed=result["failed"],
            duration_s=float(result["duration"]),
            input_lens=tuple(prompt for prompt, _ in answered),
            output_lens=tuple(text for _, text in answered),
            tpot_s=result["mean_tpot_ms"] / 1e3,
            ttft_s=result["mean_ttft_ms"] / 1e3,
            tpot_p99_s=result["p99_tpot_ms"] / 1e3 if enough else None,
            ttft_p99_s=result["p99_ttft_ms"] / 1e3 if enough else None,
            acceptance_length=result.get("spec_decode_acceptance_length"),
            drafts=result.get("spec_decode_num_drafts", none),
            draft_tokens=result.get("spec_decode_draft_tokens", none),
            accepted_tokens=result.get("spec_decode_accepted_tokens", none),
            vllm_version=vllm_version,
        )
    except (KeyError, TypeError, ValueError) as error:
        what = f"The result of vllm bench serve for {arm} at concurrency {concurrency} says no TPOT: {error}."
        raise EngineFailed(what, "See its log, in the directory of the validation.") from error


def _complaint(result: Mapping[str, Any]) -> str:
    """The first error of a request: a traceback's last line, or how the server refused it."""
    told = (error.strip() for error in result.get("errors", ()))
    return next((error.splitlines()[-1].rstrip(".") for error in told if error), "nothing is said of why")
