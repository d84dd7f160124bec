"""A real `vllm serve` under our runtime, a profile that fits it, and requests for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from builders import a_profile, a_request, an_environment
from engine.tiny_model import make_drafter, make_target
from ports import free_port

from dsd_tune.engines.vllm_server import DraftCounters, VllmServer, vllm_server
from dsd_tune.records.profile import Profile
from dsd_tune.records.table import Table
from dsd_tune.runtime.serving import device_name
from dsd_tune.storage.fingerprint import drafter_digest, model_digest

# On CPUs with AMX, vLLM's attention crashes unless a wider matrix product came first: no prompt is short.
PROMPT = "Once upon a time, when wishing still helped, there lived a king whose daughters were all beautiful. "
MAX_NUM_SEQS = 8
_open = build_opener(ProxyHandler({})).open


@dataclass(frozen=True, slots=True)
class ServedPair:
    """A target and a drafter on disk, and all that makes vLLM serve them; logs and profiles go into `folder`."""

    folder: Path
    target: Path
    drafter: Path
    method: str = "eagle"

    @classmethod
    def tiny(cls, folder: Path) -> ServedPair:
        """The tiny model of the tests, made in `folder`."""
        return cls(folder, make_target(folder / "target"), make_drafter(folder / "eagle"))

    def profile(self, table: Table) -> Profile:
        """A profile that says this table was measured here; nothing was."""
        import vllm
        from vllm.platforms import current_platform

        config = self._drafting
        environment = an_environment(
            model=str(self.target),
            model_digest=model_digest(str(self.target)),
            drafter=str(self.drafter),
            drafter_digest=drafter_digest(config),
            method=self.method,
            vllm_version=vllm.__version__,
            runner="v1",
            device=current_platform.device_type,
            device_name=device_name(),
            dtype="bfloat16",
        )
        request = a_request(model=str(self.target), speculative_config=json.dumps(config))
        profile = a_profile(environment=environment, request=request)
        decision = replace(profile.decision, table=table, max_num_seqs=table.max_num_seqs, boundaries=())
        return replace(profile, decision=decision)

    @property
    def _drafting(self) -> dict[str, str]:
        return {"method": self.method, "model": str(self.drafter)}

    @contextmanager
    def serve(self, runtime: Mapping[str, str], k_max: int = 3) -> Iterator[VllmServer]:
        """A server with speculation and no table of its own."""
        config = {**self._drafting, "num_speculative_tokens": k_max}
        arguments = ["--max-model-len", "512", "--max-num-seqs", str(MAX_NUM_SEQS), "--enforce-eager"]
        arguments += ["--kv-cache-memory-bytes", str(1 << 26), "--speculative-config", json.dumps(config)]
        log = self.folder / f"{'-'.join(runtime.values()).replace('/', '_')}-{k_max}.log"
        with vllm_server(str(self.target), arguments, free_port(), log, 300, runtime) as server:
            yield server

    def complete(self, server: VllmServer, tokens: int, number: int = 0) -> str:
        """The text of one greedy request of exactly `tokens` tokens."""
        body = {
            "model": str(self.target),
            "prompt": f"{PROMPT} {number}",
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        headers = {"Content-Type": "application/json"}
        request = Request(f"{server.url}/v1/completions", json.dumps(body).encode(), headers)  # noqa: S310 (our own)
        with _open(request, timeout=120) as answer:
            return str(json.load(answer)["choices"][0]["text"])

    def counted(self, server: VllmServer, requests: int) -> DraftCounters:
        """What vLLM counts while that many requests decode side by side."""
        before = server.draft_counters()
        with ThreadPoolExecutor(requests) as pool:
            list(pool.map(lambda n: self.complete(server, 48, n), range(requests)))
        return server.draft_counters().since(before)

    def k_of_one_request(self, server: VllmServer) -> float:
        """Draft tokens a draft, of a request that is alone."""
        counters = self.counted(server, 1)
        return counters.draft_tokens / counters.drafts if counters.drafts else 0.0

    def until(self, server: VllmServer, so: Callable[[], bool]) -> bool:
        """Send requests until it is so; False if it is not after many. A replaced profile is noticed in steps only."""
        for _ in range(50):
            if so():
                return True
            self.complete(server, 20)
        return False


def our_metrics(server: VllmServer) -> dict[str, float]:
    """Our samples by name and labels, without those that all share."""
    with _open(f"{server.url}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    samples = (re.match(r"dsd_tune:(\w+)\{(.*)\} (\S+)", line) for line in lines)
    return {_named(sample[1], sample[2]): float(sample[3]) for sample in samples if sample}


def _named(name: str, labels: str) -> str:
    own = [label for label in labels.split(",") if not label.startswith(("engine=", "model_name="))]
    return f"{name}{{{','.join(own)}}}" if own else name
