"""A profile on stdout, for whoever reads it there."""

from __future__ import annotations

import os

from rich.console import Console

from dsd_tune.records.profile import Profile
from dsd_tune.report.conditions import by_condition
from dsd_tune.report.grid import least_width, render


def show_on_screen(profile: Profile) -> None:
    """Print the tables, as wide as their numbers need."""
    # Rich would print bold all the same, and cut off numbers in a narrow terminal.
    console = Console(color_system=None if os.environ.get("NO_COLOR") else "auto")
    console.width = max(console.width, least_width(profile, console))
    console.print(render(profile))
    if profile.conditions:
        console.print(by_condition(profile))
