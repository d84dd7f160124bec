"""What readings of a server say about a table."""

from __future__ import annotations

import re

import pytest

from dsd_tune.engines.held_load import Reading
from dsd_tune.probe import Probed, probe
from dsd_tune.records.table import Table

TABLE = Table.from_dense([4] * 4 + [2] * 4 + [0] * 8)


def probed(*ks: float) -> Probed:
    """The table probed on a server that drafts these numbers."""
    left = list(ks)
    return probe(TABLE, lambda batch_size: Reading(batch_size, 100 if left[0] else 0, 100 * left.pop(0)))


def test_a_range_is_tried_at_its_first_batch_size() -> None:
    """Of a long table the first, the last and one range between are enough."""
    long = Table.from_dense([5, 4, 3, 2, 1, 0])
    assert [reading.batch_size for reading in probed(4, 2, 0).readings] == [1, 5, 9]
    assert [reading.batch_size for reading in probe(long, lambda b: Reading(b, 1, 1)).readings] == [1, 4, 6]


def test_a_server_that_drafts_what_the_table_says_is_live() -> None:
    """Drafts that are cut short at the end of a request do not matter."""
    assert probed(3.9, 2, 0).is_live
    assert probed(3.9, 2, 0).reason == "The table is live."


@pytest.mark.parametrize(
    ("ks", "reason"),
    [
        ((4, 4, 4), "a fixed K"),
        ((0, 0, 0), "Nothing was drafted"),
        ((3, 2, 0), r"cut off at K=3\. Raise num_speculative_tokens to 4"),
        ((4, 0, 0), "another table"),
        ((2, 4, 0), "another table"),
    ],
)
def test_why_a_table_is_not_live_is_named(ks: tuple[float, ...], reason: str) -> None:
    """A fixed K, no speculation, a K_max that is too small, or something else."""
    assert not probed(*ks).is_live
    assert re.search(reason, probed(*ks).reason)
