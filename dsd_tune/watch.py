"""What a server with the runtime did between two looks, and whether its profile still describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsd_tune.engines.scrape import Scrape
from dsd_tune.errors import EnvironmentUnfit

STATE = "dsd_tune:state"
STEPS_NEEDED = 100
"""Fewer steps say nothing."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Counts between two scrapes. `steps` and `step_s` are by (batch sizes, K), `acceptance` by position from 1.

    `step_time` and `accepted` are ratios to the profile, None where nothing could be compared.
    """

    state: str
    switches: float
    steps: Mapping[tuple[str, int], float]
    step_s: Mapping[tuple[str, int], float]
    acceptance: Mapping[int, float]
    step_time: float | None
    accepted: float | None

    @property
    def total_steps(self) -> float:
        """Steps of all kinds."""
        return sum(self.steps.values())

    @property
    def advice(self) -> str:
        """One sentence."""
        if self.state == "refused":
            return "The profile is not in force. See the server's log for the reason."
        if self.total_steps < STEPS_NEEDED:
            return f"Fewer than {STEPS_NEEDED} steps were seen. Watch it under load, and with one API server."
        if self.state == "drifted":
            return "The profile no longer describes this server. Sweep again."
        return "The profile describes this server. Nothing to do."

    @property
    def exit_code(self) -> int:
        """0 all is well, 5 too few steps to tell, 6 the profile does not match."""
        if self.state == "refused":
            return 6
        if self.total_steps < STEPS_NEEDED:
            return 5
        return 6 if self.state == "drifted" else 0


def watched(before: Scrape, after: Scrape) -> Watched:
    """Compare two readings of one server.

    Raises:
        EnvironmentUnfit: it does not export the runtime's metrics, or was started anew in between.
    """
    if not after.has(STATE):
        raise EnvironmentUnfit(
            "The server has no metrics of dsd-tune.", "Start it with DSD_TUNE_PROFILE, and without --disable-log-stats."
        )
    gained = after.since(before)
    if any(value < 0 for (name, _), value in gained.samples.items() if name.endswith("_total")):
        raise EnvironmentUnfit("The server was started anew in between.", "Watch it again.")
    states = [state for (state,), value in after.by(STATE, "state").items() if value]
    steps, seconds = (_by_cell(gained, f"dsd_tune:{what}_total") for what in ("steps", "step_seconds"))
    return Watched(
        state=next((state for state in ("refused", "drifted") if state in states), "applied"),
        switches=gained.total("dsd_tune:k_switches_total"),
        steps=steps,
        step_s={cell: seconds.get(cell, 0.0) / count for cell, count in steps.items()},
        acceptance=_acceptance(gained),
        step_time=_ratio(gained, "dsd_tune:compared_step_seconds_total", "dsd_tune:predicted_step_seconds_total"),
        accepted=_ratio(gained, "dsd_tune:accepted_total", "dsd_tune:expected_accepted_total"),
    )


def _by_cell(gained: Scrape, name: str) -> dict[tuple[str, int], float]:
    cells = {(sizes, int(k)): value for (sizes, k), value in gained.by(name, "batch_size", "k").items() if value}
    return dict(sorted(cells.items(), key=lambda item: (int(item[0][0].split("-")[-1]), item[0][1])))


def _acceptance(gained: Scrape) -> dict[int, float]:
    drafted, accepted = (gained.by(f"dsd_tune:{what}_total", "position") for what in ("drafted", "accepted"))
    return {int(position): accepted[position,] / count for (position,), count in sorted(drafted.items()) if count}


def _ratio(gained: Scrape, actual: str, expected: str) -> float | None:
    total = gained.total(expected)
    return gained.total(actual) / total if total else None
