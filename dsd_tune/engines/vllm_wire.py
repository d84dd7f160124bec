"""What the two sides of an engine process say to each other: one JSON line a command, one a reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dsd_tune.engines.protocol import Measured
from dsd_tune.errors import DsdTuneError, EngineFailed, EnvironmentUnfit, UsageError
from dsd_tune.records.condition import Condition
from dsd_tune.records.configured import Configured
from dsd_tune.records.environment import DUMMY
from dsd_tune.records.machine import MachineState
from dsd_tune.records.measurement import Arm, PromptCounts
from dsd_tune.records.prompt import Prompt

_ERRORS: Mapping[str, type[DsdTuneError]] = {
    kind.__name__: kind for kind in (UsageError, EnvironmentUnfit, EngineFailed)
}


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything one engine process needs to know. `order` seeds the order in which it takes the prompts."""

    model: str
    speculative_config: Mapping[str, object]
    ks: tuple[int, ...]
    max_num_seqs: int
    conditions: tuple[Condition, ...]
    prompts: tuple[Prompt, ...]
    engine_flags: tuple[str, ...]
    load_format: str
    synthetic_acceptance: tuple[float, ...]
    arm: Arm
    fixed_k: int | None
    order: str

    @property
    def k_max(self) -> int:
        """The largest K measured in any arm."""
        return max(self.ks)

    @property
    def contexts(self) -> frozenset[int]:
        """Of all conditions."""
        return frozenset(condition.context for condition in self.conditions)

    @property
    def cost_only(self) -> bool:
        """Whether drafts say nothing about the drafter."""
        return self.load_format == DUMMY or bool(self.synthetic_acceptance)


@dataclass(frozen=True, slots=True)
class BlockOrder:
    """One block to measure; fields as in `RunningEngine.measure`."""

    batch_size: int
    k: int
    condition: Condition
    steps: int
    settle: int


def launch_line(command: str, launch: Launch) -> str:
    """`command` is `describe` or `start`."""
    return json.dumps({"do": command, "launch": asdict(launch)})


def configure_line(flags: Sequence[str], environment: Mapping[str, str]) -> str:
    """The command that lets vLLM configure a planned server."""
    return json.dumps({"do": "configure", "flags": list(flags), "environment": dict(environment)})


def read_configured(raw: Mapping[str, Any]) -> Configured:
    """Undo `asdict` on a `Configured`."""
    return Configured(**{**raw, "capture_sizes": tuple(raw["capture_sizes"]), "unread": tuple(raw["unread"])})


def block_line(order: BlockOrder) -> str:
    """The command that measures a block."""
    return json.dumps({"do": "measure", "block": asdict(order)})


def read_launch(raw: Mapping[str, Any]) -> Launch:
    """Undo `launch_line`."""
    return Launch(
        **{
            **raw,
            "ks": tuple(raw["ks"]),
            "conditions": tuple(Condition(**condition) for condition in raw["conditions"]),
            "prompts": tuple(Prompt(**prompt) for prompt in raw["prompts"]),
            "engine_flags": tuple(raw["engine_flags"]),
            "synthetic_acceptance": tuple(raw["synthetic_acceptance"]),
            "arm": Arm(raw["arm"]),
        }
    )


def read_order(raw: Mapping[str, Any]) -> BlockOrder:
    """Undo `block_line`."""
    return BlockOrder(**{**raw, "condition": Condition(**raw["condition"])})


def read_measured(raw: Mapping[str, Any]) -> Measured:
    """Undo `asdict` on a `Measured`."""
    shortest, longest = raw["context"]
    machine = raw["machine"]
    return Measured(
        step_s=tuple(raw["step_s"]),
        steps_run=raw["steps_run"],
        context=(shortest, longest),
        prompts=tuple(
            PromptCounts(p["prompt"], p["steps"], tuple(p["drafted"]), tuple(p["accepted"])) for p in raw["prompts"]
        ),
        machine=None if machine is None else _machine(machine),
    )


def _machine(raw: Mapping[str, Any]) -> MachineState:
    reasons = raw["throttle_reasons"]
    return MachineState(**{**raw, "throttle_reasons": None if reasons is None else tuple(reasons)})


def reply_line(value: object) -> str:
    """A command's result."""
    return json.dumps({"ok": value})


def error_line(error: DsdTuneError) -> str:
    """A command's failure, kept as the class that the caller expects."""
    return json.dumps({"error": type(error).__name__, "what": error.what, "todo": error.todo})


def read_reply(line: str) -> Any:
    """The result, or the error raised again on this side."""
    reply = json.loads(line)
    if "error" in reply:
        raise _ERRORS[reply["error"]](reply["what"], reply["todo"])
    return reply["ok"]
