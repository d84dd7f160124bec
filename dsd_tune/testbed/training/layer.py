"""One Llama decoder layer, unrolled over draft steps: what a drafter computes for one token after another.

Index ``p`` reads the embedding of token ``p + 1`` with a feature of token ``p`` and predicts token ``p + 2``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of a drafter's layer; all but ``intermediate`` are the target's own."""

    intermediate: int
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_size: int = 64
    rope_theta: float = 100_000.0
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Reject sizes that no attention can have."""
        if self.intermediate < 1 or self.heads % self.kv_heads or self.head_size % 2:
            raise ValueError(f"a layer cannot have these sizes: {self}")


@dataclass(slots=True)
class Unrolled:
    """Keys and values of the draft steps so far.

    The first step covers all ``M`` positions, later ones the last ``S`` only, which are those that draft.
    Step ``j`` at ``p`` sees what vLLM's drafter sees there: verified tokens up to ``p - j + 1`` (step one's
    keys), then its own drafts (step ``i`` at ``p - j + i``).
    """

    padding: Tensor  # (batch,) number of empty positions on the left
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def mask(self, queries: int) -> Tensor:
        """Return what step ``len(keys)`` may see of step one, as 0 or -inf, shape (batch, 1, 1, S, M)."""
        total = self.keys[0].shape[2]
        key = torch.arange(total)
        last = torch.arange(total - queries, total) - (len(self.keys) - 1)
        seen = (key <= last[:, None]) & (key >= self.padding[:, None, None])
        return torch.zeros(seen.shape).masked_fill(~seen, -1e9)[:, None, None]


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over ``Unrolled`` keys."""

    def __init__(self, shape: LayerShape, inputs: int) -> None:
        """Make the four projections; ``inputs`` is the width of what they read."""
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(inputs, shape.heads * shape.head_size, bias=False)
        self.k_proj = nn.Linear(inputs, shape.kv_heads * shape.head_size, bias=False)
        self.v_proj = nn.Linear(inputs, shape.kv_heads * shape.head_size, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_size, shape.hidden, bias=False)

    def forward(self, inputs: Tensor, queries: int, past: Unrolled) -> Tensor:
        """Attend from the last ``queries`` positions of ``inputs``; shape (batch, queries, hidden)."""
        shape = self.shape
        batch, total, _ = inputs.shape
        offset = past.keys[0].shape[2] - total if past.keys else 0
        angles = _angles(offset, total, shape)
        key = _rotate(_heads(self.k_proj(inputs), shape.kv_heads), angles)
        past.keys.append(key)
        past.values.append(_heads(self.v_proj(inputs), shape.kv_heads))
        query = _rotate(_heads(self.q_proj(inputs[:, -queries:]), shape.heads), angles[:, -queries:])
        grouped = query.view(batch, shape.kv_heads, -1, queries, shape.head_size)
        mixed = _attend(grouped, past)
        return self.o_proj(mixed.flatten(1, 2).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Norm(nn.Module):
    """Root-mean-square norm whose weight follows the type of its input, so that it stays fused under autocast."""

    def __init__(self, shape: LayerShape) -> None:
        """Start as the plain norm."""
        super().__init__()
        self.eps = shape.eps
        self.weight = nn.Parameter(torch.ones(shape.hidden))

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalise the last dimension."""
        weight = self.weight.to(hidden.dtype)
        return functional.rms_norm(hidden, weight.shape, weight, self.eps)


class Layer(nn.Module):
    """Attention and MLP with residuals; the input of the attention is not normalised here."""

    def __init__(self, shape: LayerShape, inputs: int) -> None:
        """Make the weights under the names that vLLM loads."""
        super().__init__()
        self.self_attn = Attention(shape, inputs)
        self.mlp = _Mlp(shape)
        self.post_attention_layernorm = Norm(shape)

    def forward(self, inputs: Tensor, residual: Tensor, past: Unrolled) -> Tensor:
        """Return the hidden state after the residuals, of the positions that ``residual`` covers."""
        hidden = residual + self.self_attn(inputs, residual.shape[1], past)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))  # type: ignore[no-any-return]


class _Mlp(nn.Module):
    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        gated = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        return self.down_proj(gated)  # type: ignore[no-any-return]


def _attend(query: Tensor, past: Unrolled) -> Tensor:
    queries, step = query.shape[3], len(past.keys)
    query = query * query.shape[-1] ** -0.5
    scores = [query @ past.keys[0][:, :, None].transpose(-1, -2) + past.mask(queries)]
    own = [_delayed(keys, step - i) for i, keys in enumerate(past.keys[1:], start=2)]
    scores += [(query * keys[:, :, None]).sum(-1, keepdim=True) for keys in own]
    weights = torch.cat(scores, dim=-1).softmax(-1).to(query.dtype)
    total = past.keys[0].shape[2]
    mixed = weights[..., :total] @ past.values[0][:, :, None]
    for i, values in enumerate(past.values[1:], start=2):
        share = weights[..., total + i - 2, None]
        mixed = mixed + share * _delayed(values, step - i)[:, :, None]
    return mixed


def _delayed(states: Tensor, by: int) -> Tensor:
    return functional.pad(states, (0, 0, by, 0))[:, :, : states.shape[2]] if by else states


def _heads(states: Tensor, heads: int) -> Tensor:
    return states.view(*states.shape[:2], heads, -1).transpose(1, 2)


def _angles(offset: int, count: int, shape: LayerShape) -> Tensor:
    half = torch.arange(0, shape.head_size, 2) / shape.head_size
    angles = torch.arange(offset, offset + count)[:, None] * shape.rope_theta**-half
    return torch.stack([angles.cos(), angles.sin()])


def _rotate(states: Tensor, angles: Tensor) -> Tensor:
    first, second = states.chunk(2, dim=-1)
    cos, sin = angles.to(states.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
