"""`dsd-tune replay`: what each choice of K would have made of some traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsd_tune.records.forecast import Forecast


def replay(
    profile: Annotated[Path, typer.Argument(help="A profile that `dsd-tune fit` wrote.", metavar="PROFILE")],
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Arrivals and lengths: CSV, Azure's CSV, vLLM's or Mooncake's JSON lines."),
    ] = None,
    timed_trace_sec_multiplier: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="As in `vllm bench serve`: makes seconds of JSON timestamps.")
    ] = None,
    poisson: Annotated[
        float | None, typer.Option(metavar="RATE", help="Instead: this many requests a second, at random.")
    ] = None,
    rollout: Annotated[int | None, typer.Option(min=1, metavar="N", help="Instead: N requests at once.")] = None,
    lengths: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where --poisson and --rollout take lengths from, in order.")
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Requests of --poisson, as in `vllm bench serve`.")] = 1000,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Another limit than the profile's, up to what was measured.")
    ] = None,
    acceptance: Annotated[
        str | None, typer.Option(metavar="R1,R2,...", help="Another drafter: share accepted at each position.")
    ] = None,
    prefill_tokens_per_s: Annotated[
        float | None, typer.Option(help="Prompt tokens a second. Default: what verification was seen to reach.")
    ] = None,
    histogram: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write the time at each batch size, for `fit --concurrency`.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for a picture of batch size and K over time, replay.png.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the histogram and the picture.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Forecast no speculation, each fixed K and the table on a traffic trace, on random arrivals or on a rollout.

    TPOT, completion times, time at each K and batch size, with intervals. Nothing is started. The last line of stderr
    says how to decide again for this traffic, where a histogram was written.
    """
    import json

    from rich.console import Console

    from dsd_tune.cli.scene import scene_of
    from dsd_tune.cli.traffic import stated_traffic
    from dsd_tune.replay import replay as replayed
    from dsd_tune.report.forecast import render
    from dsd_tune.storage import codec, formats

    picture = png / "replay.png" if png else None
    for path in (histogram, picture):
        _require_new(path, force=force)
    fitted = formats.read(formats.PROFILE, profile)
    requests = stated_traffic(trace, timed_trace_sec_multiplier, poisson, rollout, lengths, num_prompts)
    scene = scene_of(fitted, max_num_seqs, acceptance, prefill_tokens_per_s)
    forecast = replayed(scene.choices, requests, scene.prefill_tokens_per_s, scene.remarks)
    if json_:
        typer.echo(json.dumps(codec.encode(forecast), indent=1))
    else:
        Console().print(render(forecast))
    if picture:
        _draw(picture, forecast)
    if histogram:
        _write_histogram(histogram, forecast, scene.advised)


def _require_new(path: Path | None, *, force: bool) -> None:
    from dsd_tune.errors import UsageError

    if path and path.exists() and not force:
        raise UsageError(f"{path} exists.", "Name another file, or say --force.")


def _draw(path: Path, forecast: Forecast) -> None:
    from dsd_tune.report.plots.replay import replay_plot
    from dsd_tune.report.plots.saved import png
    from dsd_tune.storage import files

    files.make_directory(path.parent)
    files.write_bytes(path, png(replay_plot(forecast)))


def _write_histogram(path: Path, forecast: Forecast, advised: str) -> None:
    from dsd_tune.storage.files import write_text

    choice = next((choice for choice in forecast.choices if choice.name == advised), forecast.choices[0])
    rows = (f"{size},{seconds:.6g}\n" for size, seconds in enumerate(choice.seconds_at, start=1))
    write_text(path, f"# seconds at each batch size, forecast for {choice.name}\nbatch_size,weight\n{''.join(rows)}")
    typer.echo(f"Decide again for this traffic: dsd-tune fit RUN --concurrency {path}", err=True)
