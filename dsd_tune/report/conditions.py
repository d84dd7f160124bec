"""What each of several conditions says by itself, and whether one decision serves them all."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from dsd_tune.records.profile import ConditionResult, Profile
from dsd_tune.report.grid import facts, named, percent, plain


def by_condition(profile: Profile) -> RenderableType:
    """What `fit` prints besides of a run under several conditions."""
    return Group(Text(), facts(rows(profile)))


def rows(profile: Profile) -> Iterator[tuple[str, str]]:
    """Labels and texts, a compact block for each condition."""
    yield "One for all", _answer(profile)
    for part in profile.conditions:
        yield "Condition", str(part.condition)
        yield "  By itself", named(part.decision)
        if part.regret:
            yield "", f"which saves {percent(part.regret)} there over the decision for all"
        if lengths := [f"K={a.k} {plain(a.tokens)}" for a in part.acceptance_lengths if a.k]:
            yield "  Acceptance", ", ".join(lengths)


def _answer(profile: Profile) -> str:
    unserved = [part for part in profile.conditions if not part.is_served]
    if not unserved:
        return "one decision serves every condition; all above is their mean, each counting alike"
    worst = max(unserved, key=_regret)
    return (
        f"one decision does not serve every condition: under {worst.condition} it loses {_regret(worst):.1%}. "
        "All above is the mean, each condition counting alike"
    )


def _regret(part: ConditionResult) -> float:
    return part.regret.value if part.regret else 0.0
