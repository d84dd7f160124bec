"""A table in a foreign shape: a number of drafts for some batch sizes, and what those batch sizes bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsd_tune.errors import UsageError
from dsd_tune.records.table import Table


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table that another server runs, in our words, and where the two servers differ all the same."""

    kind: str
    table: Table
    remarks: tuple[str, ...]


def keyed_by_batch_size(entries: Mapping[str, object], where: str) -> dict[int, int]:
    """Batch sizes and Ks in rising order; JSON has its keys in quotes.

    Raises:
        UsageError: a key under 1, a value under 0, or no whole number.
    """
    found = {}
    for key, value in entries.items():
        if not str(key).isdigit() or int(key) < 1 or type(value) is not int or value < 0:
            raise UsageError(f"{where}: {key!r}: {value!r} is no batch size with a number of drafts.", "Correct it.")
        found[int(key)] = value
    return dict(sorted(found.items()))


def closing_size(asked: int | None, stated: object, where: str) -> int:
    """The batch size at which the table ends: as asked, else as the file states.

    Raises:
        UsageError: neither tells.
    """
    size = asked if asked is not None else stated
    if type(size) is not int or size < 1:
        raise UsageError(f"{where} does not say where its table ends.", "Add --max-num-seqs, as in `vllm serve`.")
    return size
