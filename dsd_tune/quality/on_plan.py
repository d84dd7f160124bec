"""Whether what was asked for was measured: enough of it, at the batch size and context that were meant."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean

from dsd_tune.model.suspects import comparable
from dsd_tune.quality.listing import listed
from dsd_tune.records.condition import Condition
from dsd_tune.records.measurement import Arm, Block, Cell, Failure, Phase
from dsd_tune.records.run import SweepRequest
from dsd_tune.records.warning import Code, QualityWarning

FEW_STARTS = 3
FEW_BLOCKS = 3
LOW_KEPT_SHARE = 0.8

CONTEXTS_APART = 0.5
"""Cells of one batch size whose sequences differ by this share of the context, on average, differ by more than K."""


def on_plan(request: SweepRequest, samples: Sequence[Block | Failure]) -> Iterator[QualityWarning]:
    """Every warning about what was measured, whatever the numbers say."""
    blocks = [sample for sample in samples if isinstance(sample, Block)]
    yield from _failures([sample for sample in samples if isinstance(sample, Failure)])
    yield from _unfinished(request, samples)
    yield from _few_starts(blocks)
    yield from _few_blocks(blocks)
    yield from _not_scheduled(blocks)
    yield from _context_drift(blocks)


def _failures(failures: Sequence[Failure]) -> Iterator[QualityWarning]:
    for reason in dict.fromkeys(failure.reason for failure in failures):
        failed = [failure.cell for failure in failures if failure.reason == reason]
        yield QualityWarning(
            Code.CELL_FAILED,
            tuple(sorted(set(failed))),
            f"{listed(failed)} failed in {len(failed)} blocks: {reason.rstrip('.')}",
            "See the engine's log in the run directory; nothing is claimed about these cells.",
        )


def _unfinished(request: SweepRequest, samples: Iterable[Block | Failure]) -> Iterator[QualityWarning]:
    main = [sample for sample in samples if sample.phase is Phase.MAIN]
    given_up = {(sample.condition, sample.cell) for sample in main if isinstance(sample, Failure)}
    starts: dict[tuple[Condition, Cell], set[int]] = {key: set() for key in _asked(request) if key not in given_up}
    for sample in main:
        starts.get((sample.condition, sample.cell), set()).add(sample.start)
    short = sorted({cell for (_, cell), found in starts.items() if len(found) < request.starts})
    if short:
        yield QualityWarning(
            Code.UNFINISHED,
            tuple(short),
            f"the sweep was not finished: {listed(short)} lack some of {request.starts} starts",
            "Resume it with the same command.",
        )


def _asked(request: SweepRequest) -> list[tuple[Condition, Cell]]:
    columns = [(Arm.NO_SPEC, 0), *((Arm.DSD, k) for k in request.ks)]
    return [(c, Cell(arm, b, k)) for c in request.conditions for b in request.batch_sizes for arm, k in columns]


def _few_starts(blocks: Sequence[Block]) -> Iterator[QualityWarning]:
    main = [block for block in blocks if block.phase is Phase.MAIN]
    starts = min(len({b.start for b in main if b.cell.arm is arm}) for arm in (Arm.NO_SPEC, Arm.DSD))
    if starts < FEW_STARTS:
        yield QualityWarning(
            Code.FEW_STARTS,
            (),
            f"only {starts} engine starts an arm: intervals between arms are wide",
            f"Measure with --starts {FEW_STARTS} or more.",
        )


def _few_blocks(blocks: Iterable[Block]) -> Iterator[QualityWarning]:
    counts = Counter((block.phase, block.condition, block.cell) for block in blocks)
    few = sorted({cell for (_, _, cell), count in counts.items() if count < FEW_BLOCKS})
    if few:
        yield QualityWarning(
            Code.FEW_BLOCKS,
            tuple(few),
            f"fewer than {FEW_BLOCKS} blocks at {listed(few)}: one bad block cannot be told from the others",
            "Measure with more --rounds or --starts.",
        )


def _not_scheduled(blocks: Iterable[Block]) -> Iterator[QualityWarning]:
    kept, run = Counter[Cell](), Counter[Cell]()
    for block in blocks:
        kept[block.cell] += len(block.step_s)
        run[block.cell] += block.steps_run
    low = sorted(cell for cell in run if kept[cell] < LOW_KEPT_SHARE * run[cell])
    if low:
        share = sum(kept[cell] for cell in low) / sum(run[cell] for cell in low)
        yield QualityWarning(
            Code.NOT_SCHEDULED,
            tuple(low),
            f"only {share:.0%} of the steps met the rules at {listed(low)}: the batch size offered was often not the "
            "one scheduled",
            "Look for preemption and for --max-num-batched-tokens or the KV cache being too small for this batch size.",
        )


def _context_drift(blocks: Iterable[Block]) -> Iterator[QualityWarning]:
    for (_, condition), group in comparable(blocks).items():
        past = [block.cell for block in group if block.context[1] > condition.context]
        if past:
            yield QualityWarning(
                Code.CONTEXT_DRIFT,
                tuple(sorted(set(past))),
                f"sequences grew past {condition.context} tokens in {len(past)} blocks, at {listed(past)}",
                "Give shorter prompts or a larger --context.",
            )
        yield from _contexts_apart(condition, group)


def _contexts_apart(condition: Condition, group: Sequence[Block]) -> Iterator[QualityWarning]:
    means: dict[int, dict[Cell, float]] = defaultdict(dict)
    for cell in {block.cell for block in group}:
        means[cell.batch_size][cell] = mean(sum(block.context) / 2 for block in group if block.cell == cell)
    for batch_size, found in sorted(means.items()):
        shortest, longest = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        if found[longest] - found[shortest] > CONTEXTS_APART * condition.context:
            yield QualityWarning(
                Code.CONTEXT_DRIFT,
                (shortest, longest),
                f"at B={batch_size} sequences were {found[longest]:.0f} tokens long on average at {longest}, and "
                f"{found[shortest]:.0f} at {shortest}: a longer one costs more at any K",
                "Give more prompts of one length, a smaller --context, or more --rounds, so that lengths even out.",
            )
