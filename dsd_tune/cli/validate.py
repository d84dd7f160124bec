"""`dsd-tune validate`: the advice on real servers, before anyone deploys it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsd_tune.cli import flags
from dsd_tune.records.validation import ServedArm
from dsd_tune.runtime.policies.choice import PolicyName


def validate(
    context: typer.Context,
    profile: Annotated[Path, typer.Argument(help="A profile that `dsd-tune fit` made of a sweep.", metavar="PROFILE")],
    concurrency: flags.Concurrency = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL, one `prompt` a line: texts that the sweep did not see.")
    ] = None,
    testbed: Annotated[bool, typer.Option("--testbed", help="Use the testbed's prompts.")] = False,
    starts: Annotated[int, typer.Option(min=1, help="Server starts an arm.")] = 3,
    duration: flags.Duration = 20.0,
    output_len: flags.OutputLen = None,
    policy: Annotated[
        PolicyName | None, typer.Option(help="Also the table's server with this policy of the runtime.")
    ] = None,
    adaptive_verification: Annotated[
        bool, typer.Option("--adaptive-verification", help="Also a server where vLLM chooses what to verify (0.28 on).")
    ] = False,
    self_check: Annotated[
        bool,
        typer.Option("--self-check", help="No speculation against itself: what a difference of nothing looks like."),
    ] = False,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Load a server that is running, as the arm named by --label.")
    ] = None,
    label: Annotated[ServedArm | None, typer.Option(help="What the server at --url runs.")] = None,
    port: flags.Port = 8011,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--output-dir", metavar="DIR", help="Resumed if it exists. Default: beside the profile."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Compare the advice with no speculation and with a fixed K, on real servers.

    Each arm is a `vllm serve` with the final flags, started several times (A B C, C B A, ...: an even number evens a
    drift out) and loaded by `vllm bench serve` at each concurrency. Every load is on disk before the next; the same
    command goes on where it stopped, and with more --starts where fewer ended.

    Exit code 0: the advice is better than no speculation; 4: it is not, or the fixed K is better than it, as also where
    speculation was advised off and no arm beats that; 5: these loads cannot tell, or contradict the sweep; 6: model or
    drafter are not those of the sweep, or a server drafts otherwise than its arm says, such as one that ignores its
    table. A self-check ends with 0, or with 1 if it sees a difference.
    """
    import json

    from rich.console import Console

    from dsd_tune.cli.heeded import require_heeded
    from dsd_tune.cli.trial import tried
    from dsd_tune.cli.trial_request import chosen_prompts, server_and_label, stated_request
    from dsd_tune.report.validation import render
    from dsd_tune.storage import codec, formats
    from dsd_tune.validate import exit_code

    require_heeded(context)
    running = server_and_label(url, label)
    texts = chosen_prompts(prompts, testbed=testbed)
    request = stated_request(
        formats.read(formats.PROFILE, profile),
        profile,
        texts,
        concurrency=concurrency,
        starts=starts,
        duration_s=duration,
        output_tokens=output_len,
        policy=policy,
        adaptive_verification=adaptive_verification,
        self_check=self_check,
        served_elsewhere=running is not None,
    )
    validation = tried(profile, request, texts, out, port, running)
    if json_:
        typer.echo(json.dumps(codec.encode(validation), indent=1))
    else:
        Console().print(render(validation))
    raise typer.Exit(exit_code(validation))
