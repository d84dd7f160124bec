"""The corpus on disk: token sequences with the target's hidden states, appended while it is generated.

``tokens.i32`` holds token ids, ``hidden.bf16`` one row a token, ``sequences.jsonl`` where each sequence lies.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

AUX_LAYERS = (2, 15, 27)  # vLLM's default for a target of 30 layers: 2, n // 2, n - 3
CHUNKS = 1 + len(AUX_LAYERS)  # final hidden state after the norm, then the auxiliary layers


@dataclass(frozen=True, slots=True)
class Sequence:
    """One conversation: ``length`` tokens from row ``start``, of which ``prompt`` are the prompt's."""

    id: str
    start: int
    prompt: int
    length: int

    def __post_init__(self) -> None:
        """Reject a sequence without an answer."""
        if not 0 < self.prompt < self.length or self.start < 0:
            raise ValueError(f"sequence {self.id!r} has no answer or a bad place: {self}")


class Writer:
    """Appends sequences; a crash loses at most the last one."""

    def __init__(self, directory: Path) -> None:
        """Start an empty corpus in ``directory``, which must not hold one yet."""
        directory.mkdir(parents=True, exist_ok=True)
        self._tokens = (directory / "tokens.i32").open("xb")
        self._hidden = (directory / "hidden.bf16").open("xb")
        self._index = (directory / "sequences.jsonl").open("x", encoding="utf-8")
        self.tokens = 0

    def append(self, name: str, prompt: int, tokens: list[int], hidden: torch.Tensor) -> None:
        """Add a sequence; ``hidden`` is bf16 of shape (len(tokens), CHUNKS * hidden size)."""
        import torch

        sequence = Sequence(name, self.tokens, prompt, len(tokens))
        if hidden.shape[0] != len(tokens):
            raise ValueError(f"{hidden.shape[0]} hidden states for {len(tokens)} tokens")
        np.asarray(tokens, dtype=np.int32).tofile(self._tokens)
        self._hidden.write(hidden.contiguous().view(torch.uint16).numpy().tobytes())
        self._hidden.flush()
        self._tokens.flush()
        self._index.write(json.dumps(asdict(sequence)) + "\n")
        self._index.flush()
        self.tokens += len(tokens)


@dataclass(frozen=True, slots=True)
class Part:
    """One process' share of a corpus; ``hidden`` is a memory map of raw bf16, shape (tokens, columns)."""

    sequences: list[Sequence]
    tokens: NDArray[np.int32]
    hidden: NDArray[np.uint16]

    def tokens_of(self, sequence: Sequence) -> NDArray[np.int32]:
        """Return the ids of a sequence, prompt first."""
        return self.tokens[sequence.start : sequence.start + sequence.length]

    def hidden_of(self, sequence: Sequence, columns: slice) -> torch.Tensor:
        """Return the hidden states of a sequence as bf16, shape (length, columns)."""
        import torch

        rows = np.array(self.hidden[sequence.start : sequence.start + sequence.length, columns])
        return torch.from_numpy(rows).view(torch.bfloat16)


def open_corpus(directory: Path, hidden_size: int) -> list[Part]:
    """Open the parts below ``directory`` as far as they are written."""
    return [_open(path.parent, hidden_size) for path in sorted(directory.glob("*/sequences.jsonl"))]


def _open(directory: Path, hidden_size: int) -> Part:
    lines = (directory / "sequences.jsonl").read_text(encoding="utf-8").splitlines()
    sequences = [Sequence(**json.loads(line)) for line in lines if line.endswith("}")]
    rows = sequences[-1].start + sequences[-1].length
    tokens = np.fromfile(directory / "tokens.i32", dtype=np.int32, count=rows)
    hidden: NDArray[np.uint16] = np.memmap(
        directory / "hidden.bf16", dtype=np.uint16, mode="r", shape=(rows, CHUNKS * hidden_size)
    )
    return Part(sequences, tokens, hidden)
