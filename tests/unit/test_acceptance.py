import numpy as np
import pytest
from builders import a_block

from dsd_tune.model.acceptance import moves_with_k, positions, tokens_per_step
from dsd_tune.model.sampled import Sampled
from dsd_tune.records.measurement import Arm, Block, Cell, PromptCounts

KS = (0, 1, 2, 3)


def _block(k: int, *counts: PromptCounts, batch_size: int = 1, arm: Arm = Arm.DSD) -> Block:
    return a_block(cell=Cell(arm, batch_size, k), prompts=counts)


def _counts(prompt: str, steps: int, *accepted: int) -> PromptCounts:
    return PromptCounts(prompt, steps, (steps,) * len(accepted), accepted)


def _rates(*blocks: Block, k_max: int = 3) -> Sampled:
    return positions(blocks, k_max, np.random.default_rng(0))


def _lengths(method: str, *blocks: Block) -> Sampled:
    return tokens_per_step(blocks, KS, method, np.random.default_rng(0))


def _width(estimate: Sampled) -> float:
    low, high = estimate.limits()
    return float(high - low)


def test_each_position_has_its_own_denominator() -> None:
    """A position is judged by the steps that drafted it, at whichever K and batch size that was."""
    rates = _rates(
        _block(1, _counts("a", 100, 90)),
        _block(3, _counts("a", 100, 70, 40, 10), batch_size=16),
        _block(2, _counts("b", 50, 20, 5)),
    )
    np.testing.assert_allclose(rates.point, [180 / 250, 45 / 150, 10 / 100])


def test_undrafted_positions_are_unknown() -> None:
    """A position that no block drafted is nan and not zero."""
    rates = _rates(_block(1, _counts("a", 100, 90)))
    assert np.isfinite(rates.point).tolist() == [True, False, False]


def test_positions_drafted_in_few_prompts_still_have_an_interval() -> None:
    """A position that one prompt alone drafted has a finite interval, though resampling might have missed it."""
    others = [_block(1, _counts(f"p{i}", 100, 50)) for i in range(20)]
    rates = _rates(*others, _block(3, _counts("q", 100, 60, 30, 10)))
    assert np.isfinite(rates.draws).all()


def test_steps_without_a_draft_do_not_count_against_a_position() -> None:
    """An n-gram drafter's rate at a position is over the steps in which it proposed one."""
    rates = _rates(_block(2, PromptCounts("a", 100, (20, 10), (10, 5))), k_max=2)
    np.testing.assert_allclose(rates.point, [0.5, 0.5])


def test_interval_grows_when_prompts_differ() -> None:
    """The same totals are less sure when some prompts accept all and others nothing: prompts are what is resampled."""
    alike = _rates(*(_block(1, _counts(f"p{i}", 100, 50)) for i in range(40)), k_max=1)
    apart = _rates(*(_block(1, _counts(f"p{i}", 100, 100 * (i % 2))) for i in range(40)), k_max=1)
    by_chance = 2 * 1.96 * np.sqrt(0.5 * 0.5 / (40 * 100))
    np.testing.assert_allclose(alike.point, apart.point)
    assert _width(alike[0]) < by_chance
    assert _width(apart[0]) > 5 * by_chance


def test_one_prompt_in_many_blocks_is_one_witness() -> None:
    """Blocks of the same prompt are pooled before resampling, so repeating them makes nothing surer."""
    once = [_block(1, _counts(f"p{i}", 100, 100 * (i % 2))) for i in range(20)]
    assert _width(_rates(*once * 5, k_max=1)[0]) == pytest.approx(_width(_rates(*once, k_max=1)[0]))


def test_interval_holds_the_truth() -> None:
    """Over planted prompts of beta-distributed acceptance, nine in ten intervals or more hold the mean."""
    held = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own = rng.beta(4.8, 3.2, size=60)
        counts = [_counts(f"p{i}", 50, int(rng.binomial(50, p))) for i, p in enumerate(own)]
        low, high = positions([_block(1, *counts)], 1, rng).limits()
        held.append(low[0] <= 0.6 <= high[0])
    assert np.mean(held) >= 0.9


def test_lengths_add_the_positions_to_the_bonus_token() -> None:
    """A drafter that goes token by token gets, at each K, one token and the pooled rates up to K."""
    lengths = _lengths("eagle", _block(1, _counts("a", 100, 80)), _block(3, _counts("a", 100, 60, 30, 10)))
    np.testing.assert_allclose(lengths.point, [1.0, 1.7, 2.0, 2.1])


def test_length_at_k_0_is_exactly_1() -> None:
    """Without drafts a step gives one token, and there is nothing to doubt about it."""
    lengths = _lengths("eagle", _block(3, _counts("a", 100, 60, 30, 10)))
    assert lengths.point[0] == 1.0
    assert set(lengths.draws[:, 0]) == {1.0}


def test_length_at_k_0_needs_no_blocks() -> None:
    """A drafter judged K by K still gives one token at K=0, whether or not that was measured."""
    lengths = _lengths("ngram", _block(3, _counts("a", 100, 60, 30, 10)))
    assert lengths.point[0] == 1.0
    assert set(lengths.draws[:, 0]) == {1.0}


def test_lengths_stop_at_the_last_drafted_position() -> None:
    """A K whose last position was never drafted has no acceptance length."""
    lengths = _lengths("eagle", _block(2, _counts("a", 100, 60, 30)))
    assert np.isfinite(lengths.point).tolist() == [True, True, True, False]


@pytest.mark.parametrize("method", ["dflash", "pard"])
def test_block_drafters_are_judged_at_each_k(method: str) -> None:
    """A drafter of whole blocks may draft its first token otherwise at another K, so Ks are not pooled."""
    lengths = _lengths(method, _block(1, _counts("a", 100, 80)), _block(3, _counts("a", 100, 30, 20, 10)))
    np.testing.assert_allclose(lengths.point[[1, 3]], [1.8, 1.6])
    assert np.isnan(lengths.point[2])


def test_n_gram_drafters_are_judged_by_all_their_steps() -> None:
    """A drafter that often proposes nothing gains over all steps, not over those with a draft."""
    lengths = _lengths("ngram", _block(2, PromptCounts("a", 100, (20, 10), (10, 5))))
    assert lengths.point[2] == pytest.approx(1.15)


def test_engines_without_speculation_say_nothing_about_acceptance() -> None:
    """Blocks of the arm without speculation do not dilute a length."""
    speculative = _block(1, _counts("a", 100, 80))
    alone = _lengths("ngram", speculative)
    beside = _lengths("ngram", speculative, _block(0, _counts("a", 900), arm=Arm.NO_SPEC))
    np.testing.assert_array_equal(alone.point, beside.point)


def test_nothing_drafted_is_nothing_known() -> None:
    """Without any draft every position is nan, in the estimate and in its draws."""
    rates = _rates(_block(0, _counts("a", 100)))
    assert np.isnan(rates.point).all()
    assert np.isnan(_rates().draws).all()


def test_a_run_with_a_table_has_true_rates() -> None:
    """Drafts at two Ks: a position counts against the steps that drafted it, not against all drafts.

    Over all 4000 drafts, as counters of a server would have it, the last two rates would read 0.16 and 0.128.
    """
    rates = _rates(_block(3, _counts("a", 1000, 800, 640, 512)), _block(1, _counts("a", 3000, 2400)))
    np.testing.assert_allclose(rates.point, [0.8, 0.64, 0.512])


def test_steps_without_an_n_gram_match_count() -> None:
    """993 drafts and 821 steps without one that gave 5376 tokens are 2.96 tokens a step, not 1 + 3562 / 993 = 4.59."""
    drafted, accepted = (993, 993, 993, 992, 989), (900, 800, 700, 610, 552)
    assert (sum(drafted), sum(accepted)) == (4960, 3562)
    block = _block(5, PromptCounts("a", 993 + 821, drafted, accepted))
    lengths = tokens_per_step([block], (0, 5), "ngram", np.random.default_rng(0))
    assert block.prompts[0].tokens == 5376
    assert lengths.point[1] == pytest.approx(2.96, abs=0.005)


@pytest.mark.parametrize("method", ["eagle", "ngram"])
def test_acceptance_is_pooled_and_no_mean_of_means(method: str) -> None:
    """A long text with poor acceptance weighs by its steps, beside a short one with good: all tokens over all steps."""
    lengths = _lengths(method, _block(1, _counts("long", 900, 270), _counts("short", 100, 90)))
    assert lengths.point[1] == pytest.approx(1.36)


def _drafted(k: int, first: float, prompts: int = 40) -> Block:
    """Prompts of 100 steps around a chance of the first position; the others are accepted half as often each."""
    rng = np.random.default_rng(k)
    ones = [int(100 * np.clip(first + 0.05 * rng.standard_normal(), 0, 1)) for _ in range(prompts)]
    return _block(k, *(_counts(f"p{i}", 100, *(one // 2**place for place in range(k))) for i, one in enumerate(ones)))


def test_rates_that_depend_on_k_do_not_transfer() -> None:
    """A first position accepted 84 % at K=1 and 76 % at K=3 is judged K by K, as the numbers demand."""
    blocks = [_drafted(1, 0.836), _drafted(3, 0.757)]
    moved = moves_with_k(blocks, KS, "mtp")
    assert moved is not None
    lengths = _lengths("mtp", *blocks)
    assert lengths.point[1] == pytest.approx(1.83, abs=0.03)
    assert moved[1] == pytest.approx(lengths.point[moved[0]])


def test_rates_that_agree_are_pooled() -> None:
    """Differences that resampling prompts explains are luck: one pass at the largest K foretells the smaller ones."""
    blocks = [_drafted(1, 0.80), _drafted(3, 0.795)]
    assert moves_with_k(blocks, KS, "eagle") is None
    assert _lengths("eagle", *blocks).point[1] == pytest.approx(1 + _rates(*blocks).point[0])


def test_one_pass_at_the_largest_k_will_do() -> None:
    """A drafter that goes token by token has a length at every K from drafts at the largest alone."""
    lengths = _lengths("eagle", _drafted(3, 0.8))
    assert np.isfinite(lengths.point).all()
    assert moves_with_k([_drafted(3, 0.8)], KS, "eagle") is None


@pytest.mark.parametrize("method", ["dflash", "ngram"])
def test_methods_judged_at_each_k_cannot_move(method: str) -> None:
    """Nothing is said of transfer where nothing is transferred."""
    assert moves_with_k([_drafted(1, 0.9), _drafted(3, 0.5)], KS, method) is None


def test_without_any_draft_nothing_moves() -> None:
    """A run whose blocks with drafts all failed has no acceptance, and that is no contradiction either."""
    assert moves_with_k([], KS, "eagle") is None
