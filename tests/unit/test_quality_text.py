from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from builders import a_block

from dsd_tune.quality.on_text import on_text
from dsd_tune.records.measurement import Arm, Block, Cell, PromptCounts
from dsd_tune.records.warning import Code, QualityWarning

KS = (0, 1, 2, 3)
RATES = (0.7, 0.6, 0.5)

Rates = Callable[[int], tuple[float, ...]]


def _text(
    rates_at: Rates = lambda _: RATES, *, prompts: int = 60, steps: int = 40, spread: float = 8.0, seed: int = 0
) -> list[Block]:
    """Every prompt decoded at every K, with `rates_at(K)` the chance of each position once those before it held.

    Prompts differ as a beta distribution of this concentration.
    """
    rng = np.random.default_rng(seed)
    blocks = []
    for name in range(prompts):
        luck = rng.random()
        for k in KS[1:]:
            own = [_between(rate, luck, spread) for rate in rates_at(k)[:k]]
            accepted: list[int] = []
            for chance in own:
                accepted.append(int(rng.binomial(accepted[-1] if accepted else steps, chance)))
            counts = PromptCounts(f"p{name}", steps, (steps,) * k, tuple(accepted))
            blocks.append(a_block(cell=Cell(Arm.DSD, 1, k), prompts=(counts,)))
    return blocks


def _between(rate: float, luck: float, spread: float) -> float:
    """A prompt's own rate: all alike without a spread, further apart with more."""
    return float(np.clip(rate + (luck - 0.5) * spread / 20, 0, 1))


def _warned(blocks: list[Block], method: str = "eagle") -> dict[Code, QualityWarning]:
    return {warning.code: warning for warning in on_text(blocks, KS, method)}


@pytest.mark.parametrize("seed", range(10))
def test_real_text_warns_of_nothing(seed: int) -> None:
    """Prompts that differ as prompts do give no warning, whichever they are."""
    assert _warned(_text(seed=seed)) == {}


def test_no_drafts_no_warnings() -> None:
    """Engines without speculation say nothing about acceptance."""
    assert _warned([a_block(cell=Cell(Arm.NO_SPEC, 1, 0), prompts=())]) == {}


def test_little_text_is_warned_of() -> None:
    """Acceptance that rests on a few hundred steps says so."""
    assert _warned(_text(prompts=10, steps=15))[Code.LITTLE_TEXT].said == "acceptance rests on 450 decode steps"


def test_few_prompts_are_warned_of() -> None:
    """Much text of few prompts is warned of as well: the prompt is what an interval rests on."""
    assert "5 different prompts" in _warned(_text(prompts=5, steps=400))[Code.PROMPTS_ALIKE].said


def test_copies_of_one_prompt_are_warned_of() -> None:
    """Prompts that accept exactly alike are copies: chance alone would part them more."""
    counts = PromptCounts("p", 40, (40,), (28,))
    copies = [a_block(cell=Cell(Arm.DSD, 1, 1), prompts=(replace(counts, prompt=f"p{i}"),)) for i in range(60)]
    assert "too alike" in _warned(copies)[Code.PROMPTS_ALIKE].said


def test_independent_drafts_are_not_copies() -> None:
    """Prompts that part as chance would have it, and no further, pass."""
    for seed in range(20):
        assert Code.PROMPTS_ALIKE not in _warned(_text(spread=0, seed=seed))


def test_random_tokens_are_suspected() -> None:
    """First drafts that are accepted one time in ten look like random tokens."""
    assert _warned(_text(lambda _: (0.12, 0.4, 0.4), spread=1))[Code.RANDOM_PROMPTS].said.startswith("only 12%")


def test_a_drafter_of_another_model_is_suspected() -> None:
    """Acceptance of exactly 0 raises the question whether the drafter belongs to the model, and no other."""
    warned = _warned(_text(lambda _: (0.0, 0.0, 0.0), spread=0))
    assert list(warned) == [Code.NEVER_ACCEPTED]
    assert "belong to this model" in warned[Code.NEVER_ACCEPTED].hint


def test_text_that_repeats_itself_is_warned_of() -> None:
    """A fifth of the prompts accepting nearly everything is a loop, not a drafter; one prompt is luck."""

    def looping(share: float) -> list[Block]:
        blocks = _text()
        names = {f"p{i}" for i in range(int(60 * share))}
        return [_all_accepted(b) if b.prompts[0].prompt in names else b for b in blocks]

    assert "20% of the drafts" in _warned(looping(0.2))[Code.REPETITION_LOOP].said
    assert Code.REPETITION_LOOP not in _warned(looping(0.02))


def _all_accepted(block: Block) -> Block:
    return replace(block, prompts=tuple(replace(p, accepted=p.drafted) for p in block.prompts))


def test_more_drafts_than_k_are_warned_of() -> None:
    """A step that drafted more than K makes an acceptance length that cannot be, at the cell that is named."""
    blocks = _text()
    cell = Cell(Arm.DSD, 8, 1)
    odd = a_block(cell=cell, prompts=(PromptCounts("p0", 10, (10, 10), (9, 8)),))
    assert _warned([*blocks, odd])[Code.IMPOSSIBLE_LENGTH].cells == (cell,)


def test_rates_that_do_not_transfer_are_warned_of() -> None:
    """A drafter that accepts less at its first position the more it drafts is judged K by K, and it is said."""

    def worse_at_large_k(k: int) -> tuple[float, ...]:
        return (0.85 - 0.08 * k, 0.6, 0.5)

    warning = _warned(_text(worse_at_large_k))[Code.DEPENDS_ON_K]
    assert "each K is judged by its own blocks" in warning.said
    assert Code.DEPENDS_ON_K not in _warned(_text(worse_at_large_k), "dflash")
