"""Cross entropy against the target's own distribution, in chunks that never hold all logits at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_CHUNK = 512


class _Distil(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, output: Tensor, teacher: tuple[Tensor, Tensor], labels: Tensor, hard: float
    ) -> Tensor:
        """Compute loss and gradients together, so that the logits need not be kept for the way back."""
        teacher_hidden, teacher_output = teacher
        rows = hidden.shape[0]
        narrow = output.to(torch.bfloat16)
        grad_hidden = torch.empty_like(hidden)
        grad_output = torch.zeros_like(output) if ctx.needs_input_grad[1] else None
        total = hidden.new_zeros(())
        for start in range(0, rows, _CHUNK):
            part = slice(start, start + _CHUNK)
            mine = hidden[part].to(torch.bfloat16)
            log_q = (mine @ narrow.T).float().log_softmax(-1)
            goal = (teacher_hidden[part] @ teacher_output.T).float().softmax(-1).mul_(1 - hard)
            goal[torch.arange(goal.shape[0]), labels[part]] += hard
            total -= (goal * log_q).sum()
            slope = log_q.exp_().sub_(goal).div_(rows).to(torch.bfloat16)
            grad_hidden[part] = (slope @ narrow).to(hidden.dtype)
            if grad_output is not None:
                grad_output += (slope.T @ mine).to(output.dtype)
        ctx.save_for_backward(grad_hidden, grad_output)
        return total / rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that the forward pass kept."""
        grad_hidden, grad_output = ctx.saved_tensors
        return grad_hidden * grad, None if grad_output is None else grad_output * grad, None, None, None


def distil(
    hidden: Tensor,
    output: Tensor,
    teacher: tuple[Tensor, Tensor],
    labels: Tensor,
    hard: float = 0.5,
) -> Tensor:
    """Return the mean cross entropy of ``hidden @ output.T`` against the target.

    ``teacher`` is the target's (hidden states (N, H), output rows (V, H)) in bf16; ``labels`` (N,) are its
    greedy tokens as rows of ``output``; the goal mixes a share ``hard`` of the label with its distribution.
    """
    loss: Tensor = _Distil.apply(hidden, output, teacher, labels, hard)  # type: ignore[no-untyped-call]
    return loss
