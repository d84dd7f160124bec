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
from pathlib import Path

import torch
from torch import Tensor, distributed
from torch.nn import functional

from dsd_tune.testbed.training.batches import batches, frequent
from dsd_tune.testbed.training.checkpoint import read_embeddings, save
from dsd_tune.testbed.training.head import Eagle, Eagle3
from dsd_tune.testbed.training.store import Part, open_corpus
from dsd_tune.testbed.training.trainer import Recipe, Trainer, unroll

HIDDEN = 576
VOCABULARY = {Eagle: 4096, Eagle3: 6144}  # rows in the loss; EAGLE-3 ships them as its output layer


def _agreed(progress: float) -> float:
    """Return the first process' progress, so that all of them end with the same step."""
    if not distributed.is_initialized():
        return progress
    value = torch.tensor([progress], dtype=torch.float64)
    distributed.broadcast(value, 0)
    return float(value)


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
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--unroll-from", type=float, default=0.55)
    parser.add_argument("--share", type=float, default=0.5)
    args = parser.parse_args()
    recipe = Recipe(args.minutes, unroll_from=args.unroll_from, share=args.share)
    torch.manual_seed(recipe.seed)
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    corpus = open_corpus(args.corpus, HIDDEN)
    embeddings = read_embeddings(args.target)
    kept = frequent(corpus, VOCABULARY[Eagle if args.drafter == "eagle" else Eagle3])
    drafter = Eagle() if args.drafter == "eagle" else Eagle3(embeddings[kept].float())
    _say(f"{recipe}, {sum(part.tokens.size for part in corpus)} tokens at the start")
    train(drafter, embeddings, kept, (args.corpus, args.held_out), recipe, args.output)


if __name__ == "__main__":
    main()
