"""What numbers made elsewhere cannot say, in sentences for the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

from dsd_tune.model.published import batch_sizes, ks, missing_cells, pooled_lengths, text_deviation
from dsd_tune.records.measurement import Arm
from dsd_tune.records.published import Published, PublishedAcceptance, PublishedRow

SMALL_BATCH = 4
"""Up to this batch size one run holds too few sequences for its acceptance to be more than luck."""

_OUTPUT_LENGTHS = ("osl", "forced_osl", "output_len", "random_output_len", "output tokens a request")
_LUCK = 0.1
_REPEATS_ITSELF = 0.95
_TRANSFERS = 0.03
_FLAT = 0.02
_LISTED = 8


def caveats(published: Published) -> tuple[str, ...]:
    """What must be said with any verdict on an import, the gravest first. Remarks of the import are not repeated."""
    return (
        *_arms(published),
        *_coverage(published),
        *_assumptions(published),
        *_depth(published),
        *_acceptance(published),
        *_flat_in_k(published),
    )


def _arms(published: Published) -> Iterator[str]:
    spec = {row.cell.arm for row in published.rows if row.cell.k}
    off = {row.cell.arm for row in published.rows if not row.cell.k}
    if not off and spec:
        yield "speculation off was not tested: no row has K=0, so no gain over it can be claimed"
    if off == {Arm.DSD}:
        yield (
            "speculation off was not tested: K=0 ran in the table's engine, which still runs its drafter and is slower "
            "than an engine without speculation"
        )
    if off == {Arm.NO_SPEC} and spec:
        yield (
            "the K=0 tax is not in these numbers: K=0 was an engine without speculation, while a table's engine at K=0 "
            "still runs its drafter once a step (4 to 22 % seen elsewhere)"
        )
    if spec == {Arm.STATIC}:
        yield (
            "the table's CUDA-graph mode is not in these numbers: every K was an engine with that K fixed, while an "
            "engine with a table may run other graphs (vLLM's V1 runner falls back to PIECEWISE)"
        )


def _coverage(published: Published) -> Iterator[str]:
    missing = missing_cells(published)
    if missing:
        listed = ", ".join(f"({b}, K={k})" for b, k in missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
        yield f"missing cells ({len(missing)}): {listed}; the best K of those measured may not be the best"
    sizes = batch_sizes(published)
    if len(sizes) == 1:
        yield f"one batch size ({sizes[0]}) supports a fixed K, and no table"


def _assumptions(published: Published) -> Iterator[str]:
    if not published.rows:
        return
    cells = {row.cell for row in published.rows}
    if len(cells) == len(published.rows):
        yield (
            f"no cell was repeated: {published.cell_sd:.0%} is assumed for each number and {published.start_sd:.0%} "
            "for each engine"
        )
    else:
        yield f"repeats tell how numbers scatter; {published.start_sd:.0%} is assumed between engines"


def _depth(published: Published) -> Iterator[str]:
    lengths = [length for key in _OUTPUT_LENGTHS if (length := published.fact(key))]
    if lengths:
        yield (
            f"outputs had {lengths[0]} tokens: step time and acceptance change with depth (acceptance length 3.0 fell "
            "to 1.1 past 10,000 tokens elsewhere), so nothing is known of a max_tokens far above"
        )


def _acceptance(published: Published) -> Iterator[str]:
    yield from _unknown_lengths(published)
    yield from _uncounted(published)
    yield from _luck(published)
    for item, where in _items(published):
        share = (item.length - 1) / item.k
        if item.k > 1 and share >= _REPEATS_ITSELF:
            yield (
                f"{share:.0%} of the drafts were accepted at {where}: text that is forced to run on repeats itself, "
                "and real traffic will accept less"
            )
    yield from _no_transfer(published)


def _unknown_lengths(published: Published) -> Iterator[str]:
    pooled = pooled_lengths(published)
    unknown = [k for k in ks(published) if k and k not in pooled]
    if not unknown:
        return
    named = ", ".join(f"K={k}" for k in unknown)
    yield f"no acceptance length for {named}: TPOT is taken as printed, luck of the text included"
    small = [str(b) for b in batch_sizes(published) if b <= SMALL_BATCH]
    if pooled and small:
        yield (
            f"at batch sizes {', '.join(small)} the best K is undecided on one run: {named} cannot be freed of the "
            "luck of the text, which moved TPOT by 28 % between two runs of one cell elsewhere"
        )


def _uncounted(published: Published) -> Iterator[str]:
    if any(item.drafts is None for item, _ in _items(published)):
        yield (
            "acceptance lengths without counts of drafts are taken as all tokens over all steps; a mean over requests "
            "is another number, and may rank drafters the other way"
        )


def _luck(published: Published) -> Iterator[str]:
    pooled = pooled_lengths(published)
    for row in published.rows:
        if row.acceptance and abs(row.acceptance.length / pooled[row.cell.k] - 1) > _LUCK:
            yield (
                f"{row.cell}: acceptance length {row.acceptance.length:.2f} against {pooled[row.cell.k]:.2f} over all "
                "batch sizes is luck of the text; the pooled one is used"
            )
    if pooled and text_deviation(published) is None:
        yield f"acceptance has too few rows to tell its luck: {published.cell_sd:.0%} is assumed"


def _items(published: Published) -> Iterator[tuple[PublishedAcceptance, str]]:
    for row in published.rows:
        if row.acceptance:
            yield row.acceptance, str(row.cell)
    for item in published.acceptance:
        yield item, f"K={item.k} ({item.source})"


def _no_transfer(published: Published) -> Iterator[str]:
    """The first position's rate should not depend on how many more were drafted; for some drafters it does."""
    rates: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for item, _ in _items(published):
        if item.rates:
            rates[item.k].append(item.rates)
    means = {k: [sum(position) / len(position) for position in zip(*found, strict=True)] for k, found in rates.items()}
    for left, right in combinations(sorted(means), 2):
        if abs(means[left][0] - means[right][0]) > _TRANSFERS:
            told, seen = 1 + sum(means[right][:left]), 1 + sum(means[left])
            yield (
                f"the first draft was accepted {means[left][0]:.1%} at K={left} and {means[right][0]:.1%} at "
                f"K={right}: rates do not transfer between K, so each K needs its own (from K={right} follow "
                f"{told:.2f} tokens a step at K={left}, measured {seen:.2f})"
            )
            return


def _flat_in_k(published: Published) -> Iterator[str]:
    if is_flat_in_k(published.rows):
        yield "TPOT does not move with K: K is only a cap there, as for suffix and n-gram drafters"


def is_flat_in_k(rows: Iterable[PublishedRow]) -> bool:
    """Whether no K makes a difference of more than 2 % at any of several batch sizes."""
    by_size: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        if row.cell.k and row.tpot_s:
            by_size[row.cell.batch_size].append(row.tpot_s)
    several = [times for times in by_size.values() if len(times) > 1]
    return len(several) > 1 and all(max(times) / min(times) - 1 <= _FLAT for times in several)
