"""A prompt to measure with: a name that results can be grouped by, and its text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message. `id` names it in the measured counts."""

    id: str
    text: str

    def __post_init__(self) -> None:
        if not self.id or not self.text:
            raise ValueError("a prompt needs an id and a text")
