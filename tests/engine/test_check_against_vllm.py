"""Our reading of tables against the installed vLLM's own; no engine starts."""

from __future__ import annotations

import math
import os
import random
from typing import Any

import pytest

from dsd_tune.check.reading import Lookup, Refusal, Rejected, lax_int, read

pytestmark = pytest.mark.vllm

TABLES = int(os.environ.get("DSD_TUNE_RANDOM_TABLES", "2500"))
"""Random tables to compare; the full examination takes 10,000."""

ODD = [0, -1, 1, 2, 10**6, "3", " 4 ", "1_0", "x", 2.0, 2.5, True, None, [1], "3.0", "", math.inf, 1e18, 1e19]
"""What may stand where a number belongs."""

VLLM_SAYS = {
    Refusal.EMPTY: "must not be empty",
    Refusal.NOT_POSITIVE: "must be positive",
    Refusal.REVERSED: "start must be <= end",
    Refusal.NEGATIVE_K: "must be >= 0",
    Refusal.OVERLAP: "non-overlapping",
    Refusal.NOT_FROM_ONE: "must start at 1",
}


@pytest.fixture(scope="module")
def rng() -> random.Random:
    """A generator whose seed can be set from outside, to look at other tables."""
    return random.Random(int(os.environ.get("DSD_TUNE_SEED", "0")))


def a_table(rng: random.Random, max_num_seqs: int) -> Any:
    """A table that is right about as often as wrong, in every way that its rules know."""
    entries: list[Any] = []
    at = 1
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4, 6])):
        first = at + rng.choice([0, 0, 0, 0, 0, rng.randint(1, 9)])
        last = first + rng.choice([0, rng.randint(0, max(1, max_num_seqs // 2))])
        entries.append([first, last, rng.choice([0, 1, 2, 3, 4, 5, 7, 9])])
        at = last + 1
    if rng.random() < 0.45:
        spoil(rng, entries)
    return entries if rng.random() < 0.97 else rng.choice([{"1-16": 3}, "[[1,2,3]]", 3, {}, True, [entries], 1.5])


def spoil(rng: random.Random, entries: list[Any]) -> None:
    """Break the entries once or twice, or only make them look odd."""
    for _ in range(rng.choice([1, 1, 2])):
        if not entries:
            return
        at = rng.randrange(len(entries))
        entry = list(entries[at]) if isinstance(entries[at], list) and len(entries[at]) == 3 else [1, 1, 1]
        match rng.randrange(7):
            case 0:
                rng.shuffle(entries)
            case 1:
                entries.append(rng.choice([entry, 1]))
            case 2 | 3:
                entry[rng.randrange(3)] = rng.choice(ODD)
                entries[at] = entry
            case 4:
                entries[at] = rng.choice([entry[:2], [*entry, 1], entry * 2, {"a": 1}, "123", tuple(entry), []])
            case 5:
                entries[at] = [entry[1], entry[0], *entry[2:]]
            case _:
                entry[0] = rng.choice([1, 2, 5])
                entries[at] = entry


def test_reads_every_table_as_vllm_does(rng: random.Random) -> None:
    """A table is accepted, refused by the same rule at the same time, and looked up as in vLLM."""
    from pydantic import TypeAdapter, ValidationError
    from vllm.config.speculative import SpeculativeConfig
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    field = next(f for f in SpeculativeConfig.__pydantic_fields__ if f == "num_speculative_tokens_per_batch_size")
    adapter = TypeAdapter(SpeculativeConfig.__pydantic_fields__[field].annotation)
    verdicts = {Lookup: 0, Rejected: 0}
    for _ in range(TABLES):
        max_num_seqs, k_max = rng.choice([1, 2, 8, 33, 64, 256]), rng.randint(1, 8)
        raw = a_table(rng, max_num_seqs)
        ours = read(raw, k_max, max_num_seqs)
        verdicts[type(ours)] += 1
        try:
            parsed = adapter.validate_python(raw)
        except ValidationError:
            assert isinstance(ours, Rejected), raw
            assert ours.refusal in (Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS), raw
            continue
        if isinstance(ours, Rejected):
            with pytest.raises(ValueError, match=VLLM_SAYS[ours.refusal]):
                build_dynamic_sd_schedule_lookup(parsed, max_num_seqs, k_max)
        else:
            assert [0, *ours.dense()] == build_dynamic_sd_schedule_lookup(parsed, max_num_seqs, k_max), raw
            assert ours.canonical().dense() == ours.dense()
    assert min(verdicts.values()) > TABLES / 5, "the tables must exercise both verdicts"


@pytest.mark.parametrize(
    "table", [[], [[1, 8, 3], [9, 16, 0]], [[2, 8, 3]], [[1, 8, 9]], [[1, 8]], {"1-8": 3}], ids=repr
)
@pytest.mark.parametrize("k_max", [3, "3", 3.0, True, 0, -1, "x", 2.5, None], ids=repr)
def test_config_is_parsed_as_vllm_parses_it(table: Any, k_max: Any) -> None:
    """Whether vLLM's configuration takes table and num_speculative_tokens is known beforehand."""
    from pydantic import ValidationError
    from vllm.config.speculative import SpeculativeConfig

    config = {"method": "ngram", "num_speculative_tokens": k_max, "num_speculative_tokens_per_batch_size": table}
    ours = read(table, 3, 16)
    late = not isinstance(ours, Rejected) or ours.refusal not in (Refusal.NOT_A_LIST, Refusal.NOT_THREE_NUMBERS)
    number = lax_int(k_max)
    try:
        SpeculativeConfig(**config)
    except (ValidationError, ValueError):
        parsed = False
    else:
        parsed = True
    assert parsed == (late and number is not None and number > 0)


def test_numbers_are_read_as_vllm_reads_them() -> None:
    """What counts as a whole number is decided as vLLM's configuration decides it."""
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(int)
    odd = [True, 3.0, -0.0, 3.5, 1e15, 1e18, 1e19, -1e19, math.inf, math.nan, None, [3], {}, 10**30, -(2**63) - 1]
    words = "3, 3 ,+3,-3,3.0,3.00,3.,3.5,1_000,_1,1__0,003,,  ,0x1,1e3,٣,3\n,+ 3,--3,1_0.0,1.0_0,-3.0,.0,0.0,3 .0,1_"
    for value in [*odd, *words.split(","), "9" * 4300, "9" * 4301, "\u00a03", "-0"]:
        try:
            theirs = adapter.validate_python(value)
        except ValidationError:
            theirs = None
        assert lax_int(value) == theirs, value
