"""Train a drafter on a corpus, unrolled over its own drafts in the second part of the training.

Run as ``python -m dsd_tune.testbed.training.train {eagle,eagle3} TARGET CORPUS HELD_OUT OUTPUT``; with the
variables of torch.distributed (RANK, WORLD_SIZE, ...) several processes share each step.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.nn import functional

from dsd_tune.testbed.training.batches import Batch, batches, frequent
from dsd_tune.testbed.training.checkpoint import load, read_embeddings, save
from dsd_tune.testbed.training.head import Eagle, Eagle3
from dsd_tune.testbed.training.layer import Unrolled
from dsd_tune.testbed.training.loss import distil
from dsd_tune.testbed.training.store import Part, open_corpus

HIDDEN = 576
VOCABULARY = {Eagle: 4096, Eagle3: 6144}  # rows in the loss; EAGLE-3 ships them as its output layer


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


def _agreed(progress: float) -> float:
    """Return the first process' progress, so that all of them end with the same step."""
    if not distributed.is_initialized():
        return progress
    value = torch.tensor([progress], dtype=torch.float64)
    distributed.broadcast(value, 0)
    return float(value)


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


@torch.no_grad()
def agreement(
    drafter: Eagle | Eagle3, embeddings: Tensor, kept: Tensor, corpus: list[Part], depth: int = 4
) -> list[float]:
    """Return, by draft step, how often the draft is the target's token, given that the earlier drafts were."""
    accepted, reached = [0] * depth, [0] * depth
    own = isinstance(drafter, Eagle3)
    output = drafter.lm_head.weight.bfloat16() if isinstance(drafter, Eagle3) else embeddings
    for batch in batches(corpus, drafter.columns(HIDDEN), HIDDEN, 24, 0):
        alive = batch.valid.clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for number, (hidden, _) in enumerate(unroll(drafter, embeddings, batch, depth)):
                best = (hidden.bfloat16() @ output.T).argmax(-1)
                alive[:, :number] = False
                hit = alive & ((kept[best] if own else best) == batch.labels)
                reached[number] += int(alive.sum())
                accepted[number] += int(hit.sum())
                alive = functional.pad(hit, (1, 0))[:, :-1] & batch.valid
    return [a / max(r, 1) for a, r in zip(accepted, reached, strict=True)]


def train(
    drafter: Eagle | Eagle3, embeddings: Tensor, kept: Tensor, corpora: tuple[Path, Path], recipe: Recipe, output: Path
) -> None:
    """Train on the first corpus, watch the second, and save to ``output`` now and then and at the end.

    The corpus is opened again for each epoch, so it may still be growing.
    """
    trainer = Trainer(drafter, embeddings, kept, recipe)
    rank, world = (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    torch.manual_seed(recipe.seed + rank)
    epochs = (
        batches(
            open_corpus(corpora[0], HIDDEN),
            drafter.columns(HIDDEN),
            HIDDEN,
            recipe.batch,
            recipe.seed + epoch,
            slice(rank, None, world),
        )
        for epoch in itertools.count()
    )
    began, recent = time.monotonic(), 0.0
    for number, batch in enumerate(itertools.chain.from_iterable(epochs), start=1):
        progress = _agreed(min((time.monotonic() - began) / (60 * recipe.minutes), 1.0))
        loss = trainer.step(batch, progress)
        recent = loss if number == 1 else 0.95 * recent + 0.05 * loss
        if number % 20 == 0 and rank == 0:
            _say(f"step {number}, {progress:.1%} of the time, loss {recent:.3f}")
        if (number % 150 == 0 or progress == 1.0) and rank == 0:
            rates = agreement(drafter, embeddings, kept, open_corpus(corpora[1], HIDDEN))
            _say(f"agreement by draft step {[round(r, 3) for r in rates]}, K=3 gives {expected_length(rates[:3]):.3f}")
            save(drafter, kept, output)
        if progress == 1.0:
            return


def expected_length(rates: list[float]) -> float:
    """Return the tokens a step gives when draft ``i`` is accepted with rate ``rates[i]`` after its predecessors."""
    return 1.0 + sum(math.prod(rates[: i + 1]) for i in range(len(rates)))


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> None:
    """Train one drafter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drafter", choices=("eagle", "eagle3"))
    for name in ("target", "corpus", "held_out", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--start", type=Path, help="a saved drafter to go on with")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--unroll-from", type=float, default=0.55)
    parser.add_argument("--regression", type=float, default=0.3)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--share", type=float, default=0.5)
    args = parser.parse_args()
    recipe = Recipe(
        args.minutes, unroll_from=args.unroll_from, regression=args.regression, rate=args.rate, share=args.share
    )
    torch.manual_seed(recipe.seed)
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    corpus = open_corpus(args.corpus, HIDDEN)
    embeddings = read_embeddings(args.target)
    kept = frequent(corpus, VOCABULARY[Eagle if args.drafter == "eagle" else Eagle3])
    drafter = Eagle() if args.drafter == "eagle" else Eagle3(embeddings[kept].float())
    if args.start:
        load(drafter, args.start)
    _say(f"{recipe}, {sum(part.tokens.size for part in corpus)} tokens at the start")
    train(drafter, embeddings, kept, (args.corpus, args.held_out), recipe, args.output)


if __name__ == "__main__":
    main()
