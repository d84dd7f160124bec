"""A forecast for the terminal: 80 columns, no colour needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from dsd_tune.records.comparison import Change, Said
from dsd_tune.records.forecast import Against, ChoiceForecast, Forecast, Spread
from dsd_tune.records.interval import Interval
from dsd_tune.report.grid import facts

_WORDS = {Said.BETTER: "less", Said.WORSE: "more", Said.UNCLEAR: "cannot tell"}

_MEANS = """\
Means over requests, ± half the 95 % interval; below them the change against no
speculation, ? where nobody can tell"""
_QUANTILES = "Percentiles over requests, ± half the 95 % interval"


def render(forecast: Forecast) -> RenderableType:
    """Means with what they save, percentiles, where the time went, and what all this rests on."""
    return Group(
        Text(_MEANS), _means(forecast.choices), Text(_QUANTILES), _quantiles(forecast.choices), facts(_facts(forecast))
    )


def _means(choices: Sequence[ChoiceForecast]) -> Grid:
    grid = _grid("TPOT ms", "first token s", "completion s", "all done s", "tokens/s")
    for choice in choices:
        tpot = _number(choice.tpot_s.mean, 1e3) if choice.tpot_s else "-"
        against = choice.against_no_spec
        saved = [_saved(against.tpot), "", _saved(against.completion), _saved(against.finished)] if against else []
        numbers = [tpot, *map(_number, (choice.first_token_s.mean, choice.completion_s.mean, choice.finished_s))]
        numbers.append(_number(choice.output_tokens_per_s))
        grid.add_row(choice.name, *(f"{n}\n{s}" for n, s in zip(numbers, [*saved, *[""] * 5], strict=False)))
    return grid


def _quantiles(choices: Sequence[ChoiceForecast]) -> Grid:
    grid = _grid("TPOT ms 50%", "90%", "99%", "completion s 50%", "90%", "99%")
    for choice in choices:
        grid.add_row(choice.name, *_percentiles(choice.tpot_s, 1e3), *_percentiles(choice.completion_s, 1))
    return grid


def _percentiles(spread: Spread | None, unit: float) -> list[str]:
    numbers = (spread.p50, spread.p90, spread.p99) if spread else (None, None, None)
    return [_number(number, unit) if number else "-" for number in numbers]


def _grid(*columns: str) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    grid.add_column("", no_wrap=True)
    for column in columns:
        grid.add_column(column, justify="right")
    return grid


def _number(interval: Interval, unit: float = 1.0) -> str:
    value, half = interval.value * unit, (interval.high - interval.low) / 2 / interval.value
    return f"{value:.3g}±{half:.0%}" if value < 999.5 else f"{value:.0f}±{half:.0%}"


def _saved(change: Change | None) -> str:
    if change is None or change.said is Said.UNCLEAR:
        return "?" if change else ""
    half = (change.ratio.high - change.ratio.low) / 2
    return f"{change.ratio.value - 1:+.0%}±{half:.0%}".replace("%±", "±")


def _facts(forecast: Forecast) -> Iterator[tuple[str, str]]:
    yield "Traffic", f"{forecast.requests} requests, {forecast.output_tokens} output tokens"
    yield "Prefill", f"taken to be {_rate(forecast.prefill_tokens_per_s)} tokens a second (--prefill-tokens-per-s)"
    for choice in forecast.choices:
        yield choice.name, _where_time_went(choice)
    if forecast.table_against_fixed:
        yield f"Table against {forecast.best_fixed}", _against(forecast.table_against_fixed)
    if forecast.rests_on < forecast.requests:
        yield "Intervals", f"come from the first {forecast.rests_on} requests"
    for remark in forecast.remarks:
        yield "Note", remark


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s:.0f}" if tokens_per_s >= 1000 else f"{tokens_per_s:.3g}"


def _where_time_went(choice: ChoiceForecast) -> str:
    busy = sum(choice.seconds_at)
    reached = [seconds / busy for seconds in accumulate(choice.seconds_at)]
    half, most = (next(b for b, share in enumerate(reached, start=1) if share >= level) for level in (0.5, 0.9))
    ks = ", ".join(f"K={k} {seconds / busy:.0%}" for k, seconds in choice.seconds_per_k if seconds / busy >= 0.005)
    shares = f"; {ks}" if len(choice.seconds_per_k) > 1 else ""
    full = f", {choice.full_share:.0%} of it full" if choice.full_share >= 0.005 else ""
    return f"half of the time B <= {half}, 90% of it B <= {most}{full}{shares}"


def _against(against: Against) -> str:
    named = (("TPOT", against.tpot), ("completion", against.completion), ("all done", against.finished))
    return ", ".join(f"{name} {_in_words(change)}" for name, change in named if change)


def _in_words(change: Change) -> str:
    low, high = change.ratio.low - 1, change.ratio.high - 1
    word = _WORDS.get(change.said, change.said.value)
    return f"{word} ({change.ratio.value - 1:+.1%} [{low:+.1%}, {high:+.1%}])"
