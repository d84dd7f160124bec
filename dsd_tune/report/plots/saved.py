"""A figure as the bytes of a file; equal figures give equal bytes."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_AN_INCH = 160


def svg(figure: Figure) -> bytes:
    """Without a ground of its own, so that it takes that of its page; without a date and random names."""
    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "dsd-tune"}):
        figure.savefig(buffer, format="svg", dpi=_DOTS_AN_INCH, transparent=True, metadata={"Date": None})
    return buffer.getvalue()


def png(figure: Figure) -> bytes:
    """On white, since nobody knows where it goes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=_DOTS_AN_INCH, metadata={"Software": None})
    return buffer.getvalue()
