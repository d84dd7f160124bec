"""Servers that obey the cost law of a simulated engine and the table of their command, in place of vLLM's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsd_tune.engines.simulated import SimulatedEngine
from dsd_tune.engines.vllm_facts import TABLE_FIELD
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.validation import ArmCommand, Load, ServedArm, ValidationRequest


@dataclass(frozen=True)
class SimulatedHost:
    """Takes the place of `VllmHost`. `served` remembers every command; a patched vLLM `ignores_tables`."""

    engine: SimulatedEngine
    served: list[ArmCommand]
    request: ValidationRequest
    ignores_tables: bool = False
    vllm_version: str | None = None

    @contextmanager
    def serve(self, command: ArmCommand, start: int) -> Iterator[SimulatedClient]:
        """A server for as long as the block runs."""
        self.served.append(command)
        yield SimulatedClient(self, command.arm, _config(command))

    def client(self, url: str, arm: ServedArm) -> SimulatedClient:
        """Clients of a server that others started with K=2 throughout."""
        return SimulatedClient(self, arm, {"num_speculative_tokens": 2})


@dataclass(frozen=True)
class SimulatedClient:
    """Clients of one server, which runs `config`."""

    host: SimulatedHost
    arm: ServedArm
    config: dict[str, object]

    def load(self, concurrency: int, start: int) -> Load:
        """What clients see where the batch is always full."""
        request, engine = self.host.request, self.host.engine
        count = request.requests_at(concurrency)
        k = self._k(concurrency)
        tokens = count * request.output_tokens
        length = engine.true_tokens_per_step(k)
        steps = round((tokens - count) / length)
        arm = Arm.DSD if k or TABLE_FIELD in self.config else Arm.NO_SPEC
        tpot_s = engine.true_tpot_s(Cell(arm, concurrency, k)) * (1 + 0.002 * ((start + len(self.arm)) % 3))
        return Load(
            arm=self.arm,
            start=start,
            concurrency=concurrency,
            taken_at_s=1.5,
            requests=count,
            failed=0,
            duration_s=tpot_s * tokens / concurrency,
            input_lens=(50,) * count,
            output_lens=(request.output_tokens,) * count,
            tpot_s=tpot_s,
            ttft_s=tpot_s * 2,
            tpot_p99_s=None,
            ttft_p99_s=None,
            acceptance_length=length if k else None,
            drafts=steps if k else 0,
            draft_tokens=k * steps,
            accepted_tokens=tokens - count - steps,
            vllm_version=self.host.vllm_version,
        )

    def _k(self, batch_size: int) -> int:
        ranges = [] if self.host.ignores_tables else self.config.get(TABLE_FIELD, [])
        found = [k for first, last, k in ranges if first <= batch_size <= last]  # type: ignore[attr-defined]
        return found[0] if found else int(str(self.config.get("num_speculative_tokens", 0)))


def _config(command: ArmCommand) -> dict[str, object]:
    words = command.arguments
    flag = "--speculative-config"
    return json.loads(words[words.index(flag) + 1]) if flag in words else {}


def lay(
    monkeypatch: object,
    engine: SimulatedEngine,
    served: list[ArmCommand],
    *,
    ignores_tables: bool = False,
    vllm_version: str | None = None,
) -> None:
    """Put such servers in vLLM's place."""

    def host(request: ValidationRequest, texts: object, tokenizer: str, port: int, directory: Path) -> SimulatedHost:
        return SimulatedHost(engine, served, request, ignores_tables, vllm_version)

    monkeypatch.setattr("dsd_tune.cli.trial.VllmHost", host)  # type: ignore[attr-defined]
