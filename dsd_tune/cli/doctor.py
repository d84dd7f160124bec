"""`dsd-tune doctor`: can this machine, this vLLM and this drafter use a table?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsd_tune.check.command_line import Settings
    from dsd_tune.check.examination import Examination

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
"""vLLM's own way to choose a model runner: 0 or 1."""


def doctor(
    model: Annotated[str | None, typer.Option(help="As in `vllm serve`.")] = None,
    speculative_config: Annotated[
        str | None, typer.Option(metavar="JSON", help="As in `vllm serve`, with or without a table.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Ask a running server, and look at nothing here.")] = None,
    vllm_path: Annotated[
        Path | None, typer.Option(metavar="DIR", help="An unpacked vLLM, in place of the installed one.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[vllm serve ...|-- FLAGS]", help="A whole command line, or further flags of it."),
    ] = None,
) -> None:
    """Look at the vLLM, the machine and the planned server: can they use a table, and what is in the way?

    Exit code 0: yes; 3: an error is in the way; 2: unusable input.
    """
    from dsd_tune.cli.examination import as_json, as_text
    from dsd_tune.cli.intended import settings
    from dsd_tune.errors import UsageError

    if url is not None and vllm_path is not None:
        raise UsageError("--url and --vllm-path ask for two patients.", "Give one of them.")
    wanted = settings({"model": model, "speculative-config": speculative_config}, None, command or [])
    seen = _ask(url, wanted) if url is not None else _look(vllm_path, wanted)
    typer.echo(as_json(seen) if json_ else as_text(seen))
    raise typer.Exit(0 if seen.is_fit else 3)


def _ask(url: str, wanted: Settings) -> Examination:
    """A running server, and what its version does with the config that it is said to run."""
    from dsd_tune.check.command_line import deployment
    from dsd_tune.check.diagnosis import diagnose
    from dsd_tune.check.examination import Examination
    from dsd_tune.engines.vllm_running import ask
    from dsd_tune.records.release import Release

    server = ask(url)
    if not wanted:
        return Examination(server=server)
    planned = deployment(wanted, Release.parse(server.version), cpu="cpu" in server.version)
    return Examination(server=server, diagnosis=diagnose(planned))


def _look(vllm_path: Path | None, wanted: Settings) -> Examination:
    """The sources of a vLLM, this machine, and the planned server if there is one."""
    from dataclasses import replace

    from dsd_tune.check.command_line import deployment
    from dsd_tune.check.diagnosis import diagnose
    from dsd_tune.check.examination import Examination
    from dsd_tune.engines.host import this_host
    from dsd_tune.engines.vllm_source import find, look

    source = look(find(vllm_path))
    seen = Examination(source=source, host=this_host())
    if not wanted:
        return seen
    runner = {"0": {"model-runner": "v1"}, "1": {"model-runner": "v2"}}.get(os.environ.get(RUNNER_VARIABLE, ""), {})
    planned = deployment({**runner, **wanted}, source.release, cpu=source.cpu)
    seen = replace(seen, diagnosis=diagnose(replace(planned, source_traits=source.traits)))
    # Only the vLLM that is installed can be asked itself.
    return seen if vllm_path is not None or planned.model is None else _configured(seen, wanted)


def _configured(seen: Examination, wanted: Settings) -> Examination:
    """The same with vLLM's own configuration in place of assumptions, or with its refusal."""
    from dataclasses import replace

    from dsd_tune.check.command_line import to_flags
    from dsd_tune.check.diagnosis import diagnose
    from dsd_tune.check.on_configured import as_configured, on_refusal
    from dsd_tune.engines.vllm_planned import configure
    from dsd_tune.errors import EnvironmentUnfit
    from dsd_tune.model.cudagraph import Runner

    assert seen.diagnosis is not None
    planned = seen.diagnosis.deployment
    variables = {} if planned.asked_runner is None else {RUNNER_VARIABLE: str(int(planned.asked_runner is Runner.V2))}
    try:
        configured = configure(str(planned.model), planned.speculative_config, to_flags(wanted), variables)
    except EnvironmentUnfit as error:
        return replace(seen, refusal=on_refusal(error))
    return replace(seen, configured=configured, diagnosis=diagnose(as_configured(planned, configured)))
