"""What makes a measurement doubtful: one code of a closed list, the cells it touches, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dsd_tune.records.measurement import Cell


class Code(StrEnum):
    """Everything that `fit` can warn of; `docs/quality.md` says when each is raised."""

    CELL_FAILED = "cell-failed"
    UNFINISHED = "unfinished"
    FEW_STARTS = "few-starts"
    FEW_BLOCKS = "few-blocks"
    NOISY = "noisy"
    OUTLIER_BLOCK = "outlier-block"
    OUTLIER_CELL = "outlier-cell"
    DRIFTING = "drifting"
    FIRST_ROUND_SLOW = "first-round-slow"
    THROTTLED = "throttled"
    NOT_SCHEDULED = "not-scheduled"
    CONTEXT_DRIFT = "context-drift"
    LITTLE_TEXT = "little-text"
    PROMPTS_ALIKE = "prompts-alike"
    RANDOM_PROMPTS = "random-prompts"
    REPETITION_LOOP = "repetition-loop"
    NEVER_ACCEPTED = "never-accepted"
    IMPOSSIBLE_LENGTH = "impossible-length"
    DEPENDS_ON_K = "depends-on-k"
    COST_ONLY = "cost-only"
    IMPORTED = "imported"
    UNCODED = "uncoded"


@dataclass(frozen=True, slots=True)
class QualityWarning:
    """`said` is what is so in this run, `hint` what to do; `cells` are those concerned, none if it is the whole run."""

    code: Code
    cells: tuple[Cell, ...]
    said: str
    hint: str

    def __post_init__(self) -> None:
        if not self.said or not self.hint:
            raise ValueError(f"{self.code} needs to say what is so, and what to do")

    def __str__(self) -> str:
        return f"{self.said}. {self.hint}"
