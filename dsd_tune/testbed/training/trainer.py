"""One training step of a drafter: forward over its own drafts, loss against the target, Muon and AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, distributed
from torch.nn import functional

from dsd_tune.testbed.training.batches import Batch
from dsd_tune.testbed.training.head import Eagle, Eagle3
from dsd_tune.testbed.training.layer import Unrolled
from dsd_tune.testbed.training.loss import distil


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the result, besides the corpus."""

    minutes: float  # of training; the learning rate falls with time, so that a slow machine trains less, not worse
    batch: int = 16
    unroll: int = 3
    unroll_from: float = 0.55  # share of the time that trains the first draft alone
    rate: float = 2e-3
    share: float = 0.5  # share of the positions that enter the cross entropy
    others: int = 512  # rows of rarer tokens that EAGLE's full output layer is kept down on
    regression: float = 0.3  # weight of EAGLE's distance to the target's next hidden state
    noise: float = 0.05  # added to features, relative to each one's size
    seed: int = 20261129

    def __post_init__(self) -> None:
        """Reject a recipe that trains nothing."""
        if self.minutes <= 0 or self.batch < 1 or self.unroll < 1 or not 0 < self.share <= 1:
            raise ValueError(f"this recipe trains nothing: {self}")


class Trainer:
    """A drafter with its optimisers; ``step`` takes one batch."""

    def __init__(self, drafter: Eagle | Eagle3, embeddings: Tensor, kept: Tensor, recipe: Recipe) -> None:
        """``embeddings`` are the target's (bf16, also its output layer); ``kept`` the ids that the loss knows."""
        self.drafter, self.embeddings, self.recipe = drafter, embeddings, recipe
        self.kept = kept
        self.rows = torch.full((embeddings.shape[0],), -1)
        self.rows[kept] = torch.arange(len(kept))
        self._rest = (self.rows < 0).nonzero().flatten()
        named = [(name, weight) for name, weight in drafter.named_parameters()]
        matrices = [w for name, w in named if w.ndim == 2 and "lm_head" not in name]
        vectors = [w for _, w in named if w.ndim == 1]
        output = [w for name, w in named if "lm_head" in name]
        self._muon = torch.optim.Muon(matrices, lr=recipe.rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
        groups = [{"params": vectors, "lr": recipe.rate}, {"params": output, "lr": recipe.rate / 5}]
        self._adam = torch.optim.AdamW([g for g in groups if g["params"]], betas=(0.9, 0.98), weight_decay=0.0)
        self._rates = [(group, group["lr"]) for o in (self._muon, self._adam) for group in o.param_groups]

    def step(self, batch: Batch, progress: float) -> float:
        """Train on one batch; ``progress`` in [0, 1] sets the rate and the unrolling. Returns the loss."""
        scale = min(progress / 0.02, 1.0) * (1.0 - progress) + 1e-3
        for group, rate in self._rates:
            group["lr"] = rate * scale
        depth = self.recipe.unroll if progress >= self.recipe.unroll_from else 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self._loss(batch, depth)
        loss.backward()  # type: ignore[no-untyped-call]
        if distributed.is_initialized():
            _average(list(self.drafter.parameters()))
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        self._muon.step()  # type: ignore[no-untyped-call]
        self._adam.step()
        for weight in self.drafter.parameters():
            weight.grad = None
        return loss.item()

    def _loss(self, batch: Batch, depth: int) -> Tensor:
        output, ids = self._output()
        chosen = batch.valid & (self.rows[batch.labels] >= 0)
        chosen &= torch.rand(chosen.shape) < self.recipe.share
        losses = []
        for number, (hidden, _) in enumerate(unroll(self.drafter, self.embeddings, batch, depth, self.recipe.noise)):
            at = chosen.clone()
            at[:, :number] = False
            teacher = (batch.final[at], self.embeddings[ids])
            losses.append(distil(hidden[at], output, teacher, self.rows[batch.labels[at]]))
            if isinstance(self.drafter, Eagle):
                at = batch.valid.clone()
                at[:, :number] = False
                distance = functional.smooth_l1_loss(hidden[at].float(), batch.final[at].float())
                losses[-1] = losses[-1] + self.recipe.regression * distance
        weights = [0.8**number for number in range(depth)]
        return sum(w * part for w, part in zip(weights, losses, strict=True)) / sum(weights)  # type: ignore[return-value]

    def _output(self) -> tuple[Tensor, Tensor]:
        if isinstance(self.drafter, Eagle3):
            return self.drafter.lm_head.weight, self.kept
        others = self._rest[torch.randint(len(self._rest), (self.recipe.others,))]
        ids = torch.cat([self.kept, others])
        return self.embeddings[ids], ids


def _average(weights: list[Tensor]) -> None:
    flat = torch.cat([w.grad.flatten() for w in weights if w.grad is not None])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    for weight, part in zip(weights, torch.split(flat, [w.numel() for w in weights]), strict=True):
        weight.grad = part.view_as(weight)


def unroll(
    drafter: Eagle | Eagle3, embeddings: Tensor, batch: Batch, depth: int, noise: float = 0.0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (output hidden state, feature), each (batch, S, hidden), of draft steps 1 to ``depth``.

    Step ``j`` at ``p`` reads what step ``j - 1`` made at ``p - 1``; its first ``j - 1`` positions mean nothing.
    """
    past = Unrolled(batch.padding)
    embeds = embeddings[batch.inputs]
    stored = batch.stored
    if noise:
        stored = stored * (1 + noise * torch.randn(stored.shape, dtype=stored.dtype))
    queries = batch.labels.shape[1]
    feature = drafter.feature(stored)
    for _ in range(depth):
        hidden, feature = drafter(embeds, feature, queries, past)
        yield hidden, feature
        embeds = embeds[:, -queries:]
        feature = functional.pad(feature, (0, 0, 1, 0))[:, :-1]
