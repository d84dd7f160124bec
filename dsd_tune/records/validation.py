"""What real servers showed: loads, each one arm at one concurrency, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from dsd_tune.records.comparison import Said
from dsd_tune.records.interval import Interval


class ServedArm(StrEnum):
    """A way to serve that is compared with others."""

    NO_SPEC = "no_spec"
    """Without speculation."""
    NO_SPEC_TWIN = "no_spec_twin"
    """The same again under another name: what a comparison of equals looks like on this machine."""
    FIXED = "fixed_k"
    """The best fixed K of the profile."""
    TABLE = "table"
    """The table of the profile."""
    POLICY = "policy"
    """The table's engine with a policy of the runtime setting K."""
    ADAPTIVE = "adaptive_verification"
    """vLLM's own choice of what to verify, up to the table's largest K."""

    @property
    def words(self) -> str:
        """What it is called in a sentence."""
        names = {self.NO_SPEC: "no speculation", self.NO_SPEC_TWIN: "no speculation again", self.FIXED: "fixed K"}
        more = {self.TABLE: "table", self.POLICY: "table with policy", self.ADAPTIVE: "adaptive verification"}
        return {**names, **more}[self]


@dataclass(frozen=True, slots=True)
class ArmCommand:
    """The words after `vllm serve`, and variables of its environment, as pairs."""

    arm: ServedArm
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ValidationRequest:
    """One validation as asked for: every arm is started `starts` times and loaded at each concurrency.

    At `concurrency[i]` a load is `requests[i]` requests, the same for every arm, each of `output_tokens` at most: the
    model ends a text. No `commands` means servers that others started.
    """

    commands: tuple[ArmCommand, ...]
    concurrency: tuple[int, ...]
    starts: int
    requests: tuple[int, ...]
    output_tokens: int
    temperature: float
    prompts_digest: str

    def __post_init__(self) -> None:
        if not self.concurrency or list(self.concurrency) != sorted(set(self.concurrency)) or self.concurrency[0] < 1:
            raise ValueError(f"concurrencies must be 1 or more, rise and differ, got {self.concurrency}")
        if len(self.requests) != len(self.concurrency) or min(*self.requests, self.starts, self.output_tokens - 1) < 1:
            raise ValueError("each concurrency needs a request, a validation a start, and a TPOT two tokens")

    def requests_at(self, concurrency: int) -> int:
        """Requests of a load at one of the concurrencies."""
        return self.requests[self.concurrency.index(concurrency)]

    def unlike(self, other: ValidationRequest) -> tuple[str, ...]:
        """The fields in which another asks something else. For more starts or fewer is no other question."""
        names = (field.name for field in fields(self) if field.name != "starts")
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))


@dataclass(frozen=True, slots=True)
class Load:
    """What clients of one server start saw at one concurrency.

    `start` counts the starts of this arm. `tpot_s` and `ttft_s` are means over requests; the 99th percentiles are
    None where fewer requests than these need were made. `input_lens` and `output_lens` hold the tokens of prompt and
    answer of each request that was answered; nobody kept the first in old files. `acceptance_length` is None where
    nothing was drafted. `drafts`, `draft_tokens` and `accepted_tokens` are the server's own counts, None where it was
    not asked for them; a draft is what one request gets in one step. `vllm_version` is the server's, None where nobody
    asked or a router did not tell.
    """

    arm: ServedArm
    start: int
    concurrency: int
    taken_at_s: float
    requests: int
    failed: int
    duration_s: float
    input_lens: tuple[int, ...] | None
    output_lens: tuple[int, ...]
    tpot_s: float
    ttft_s: float
    tpot_p99_s: float | None
    ttft_p99_s: float | None
    acceptance_length: float | None
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    vllm_version: str | None

    def __post_init__(self) -> None:
        if not all(math.isfinite(s) and s > 0 for s in (self.duration_s, self.tpot_s, self.ttft_s)):
            raise ValueError(f"times must be positive and finite, got {self}")
        if not 0 <= self.failed <= self.requests - len(self.output_lens) or self.output_tokens < 1:
            raise ValueError(f"a load needs requests that were answered, got {self}")
        if self.input_lens is not None and len(self.input_lens) != len(self.output_lens):
            raise ValueError(f"every answer has a prompt, got {self}")

    @property
    def output_tokens(self) -> int:
        """All of them."""
        return sum(self.output_lens)

    @property
    def texts(self) -> tuple[tuple[int, int], ...]:
        """Tokens of prompt and answer of each request that was answered, 0 for a prompt whose length nobody kept."""
        return tuple(zip(self.input_lens or (0,) * len(self.output_lens), self.output_lens, strict=True))

    @property
    def throughput(self) -> float:
        """Output tokens a second."""
        return self.output_tokens / self.duration_s

    @property
    def mean_k(self) -> float | None:
        """Tokens drafted for a request in a step, steps without drafts included; None if the server did not tell.

        A step yields a token besides those accepted, and the first token of a request comes from its prefill. Tokens
        accepted beyond the end of a text are counted too, which hides steps; there are at least as many as drafts.
        """
        if self.draft_tokens is None or self.accepted_tokens is None:
            return None
        steps = max(self.output_tokens - len(self.output_lens) - self.accepted_tokens, self.drafts or 0)
        return self.draft_tokens / steps if steps > 0 else None


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """`arm` against `against`, over all concurrencies if `concurrency` is None.

    The three are shares saved of TPOT and TTFT and won of throughput: 0.1 is 10 %. `detectable` is the smallest
    share of TPOT that a difference would have to have to be seen four times in five; None after a single start.
    """

    arm: ServedArm
    against: ServedArm
    concurrency: int | None
    tpot: Interval
    throughput: Interval
    ttft: Interval
    detectable: float | None
    said: Said

    @property
    def overall(self) -> bool:
        """Whether it is over all concurrencies."""
        return self.concurrency is None


@dataclass(frozen=True, slots=True)
class Prediction:
    """TPOT as the profile says and as a server showed, in seconds; `predicted` is None where nothing is claimed."""

    arm: ServedArm
    concurrency: int
    predicted: Interval | None
    measured: Interval

    @property
    def error(self) -> float | None:
        """How far the prediction is above what was measured, as a share of that."""
        return self.predicted.value / self.measured.value - 1 if self.predicted else None


@dataclass(frozen=True, slots=True)
class Validation:
    """What servers said about a profile's advice.

    `said` is of `advised` against no speculation, and worse also where the fixed K is better than it. Comparisons are
    with either; those with the fixed K are missing in older records.
    """

    request: ValidationRequest
    advised: ServedArm
    comparisons: tuple[ArmComparison, ...]
    predictions: tuple[Prediction, ...]
    said: Said
    remarks: tuple[str, ...]
    loads: int
    created_at_s: float

    def against(self, arm: ServedArm) -> tuple[ArmComparison, ...]:
        """The comparisons with one arm."""
        return tuple(row for row in self.comparisons if row.against is arm)

    def overall(self, arm: ServedArm) -> Said | None:
        """What is said of an arm against no speculation over all concurrencies, None where they were not compared."""
        return next((row.said for row in self.against(ServedArm.NO_SPEC) if row.overall and row.arm is arm), None)

    def outlasts(self, newer: Validation) -> bool:
        """Whether it stays in the profile: what cannot tell takes nothing back, unless with more of the same loads."""
        if newer.said is not Said.UNCLEAR or self.said is Said.UNCLEAR or self.advised is not newer.advised:
            return False
        more = newer.request.commands and not newer.request.unlike(self.request) and newer.loads > self.loads
        return not more

    @property
    def lost_to_fixed(self) -> bool:
        """Whether it is the fixed K that refutes the advice."""
        advised, fixed = self.overall(self.advised), self.overall(ServedArm.FIXED)
        if self.said is not Said.WORSE or advised is None or fixed is None:
            return False
        return fixed is Said.BETTER or advised is not Said.WORSE

    @property
    def outcome(self) -> str:
        """What it comes to, in words."""
        if self.advised is ServedArm.NO_SPEC:
            beaten = {Said.SAME: "not beaten", Said.UNCLEAR: "not known to be beaten"}
            return f"no speculation is {beaten.get(self.said, 'beaten by another arm')}"
        if not self.lost_to_fixed:
            return f"{self.advised.words} is {_beside_nothing(self.said)}"
        fixed = self.overall(ServedArm.FIXED)
        if fixed is Said.BETTER:
            alone = _beside_nothing(self.overall(self.advised))
            return f"{self.advised.words} is {alone}, and fixed K is better than both"
        return f"fixed K is better than {self.advised.words}, and {_beside_nothing(fixed)}"


def _beside_nothing(said: Said | None) -> str:
    words: dict[Said | None, str] = {Said.SAME: "the same as", Said.UNCLEAR: "not told apart from"}
    return f"{words.get(said, f'{said} than')} no speculation"
