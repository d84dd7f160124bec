"""One row of a CSV file, read by quantity rather than by column name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dsd_tune.errors import UsageError
from dsd_tune.importers.columns import Column, Quantity
from dsd_tune.records.published import Fact

_LARGEST = {Quantity.BATCH_SIZE: 65536, Quantity.OFFERED: 65536, Quantity.RUNNING: 65536, Quantity.K: 1024}
"""Far above what any server runs: more is a column in another's place."""


class Line:
    """A row with the columns that are understood; `source` is what to quote it by."""

    def __init__(self, source: str, columns: list[Column], cells: Mapping[str, str]) -> None:
        self.source = source
        self._columns = columns
        self._cells = cells

    def text(self, quantity: Quantity) -> str | None:
        """The first value of a quantity, as written; None if empty."""
        found = (self._cells[c.name].strip() for c in self._of(quantity))
        return next((text for text in found if text), None)

    def number(self, quantity: Quantity) -> float | None:
        """The first value of a quantity, in our unit."""
        for col in self._of(quantity):
            if text := self._cells[col.name].strip():
                return self._bounded(quantity, self._parsed(col.name, text) * col.factor)
        return None

    def count(self, quantity: Quantity) -> int | None:
        """The first value of a quantity that is a whole number."""
        value = self.number(quantity)
        if value is not None and value != round(value):
            raise UsageError(f"{self.source}: {quantity} {value:g} is no whole number.", "Correct the file.")
        return None if value is None else round(value)

    def positions(self) -> tuple[float, ...]:
        """Rates from the first position to the last that is filled in."""
        rates = []
        for col in self._of(Quantity.POSITION):
            if not (text := self._cells[col.name].strip()):
                break
            rates.append(self._parsed(col.name, text) * col.factor)
        return tuple(rates)

    def facts(self) -> list[Fact]:
        """Facts stated in the row."""
        stated = ((c.name, self._cells[c.name].strip()) for c in self._of(Quantity.FACT))
        return [Fact(name.strip().lower(), value) for name, value in stated if value]

    def _of(self, quantity: Quantity) -> list[Column]:
        return sorted((c for c in self._columns if c.quantity is quantity), key=lambda c: c.rank)

    def _bounded(self, quantity: Quantity, value: float) -> float:
        if value > _LARGEST.get(quantity, math.inf):
            raise UsageError(
                f"{self.source}: {quantity} is {value:g}, above {_LARGEST[quantity]}.", "Correct the file."
            )
        return value

    def _parsed(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{self.source}: {name} is {text!r}, no number.", "Correct the file.")
        return value
