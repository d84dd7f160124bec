"""What an output format gives back: the text to paste, and what its reader must know beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Emission:
    """`text` has no trailing newline; `remarks` are sentences without a full stop."""

    text: str
    remarks: tuple[str, ...] = ()
