"""`dsd-tune emit-config`: the verdict as text to paste."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsd_tune.emit.formats import Format

if TYPE_CHECKING:
    from dsd_tune.check.deployment import Deployment
    from dsd_tune.records.profile import Profile


def emit_config(
    profile: Annotated[Path, typer.Argument(help="A profile that `dsd-tune fit` wrote.", metavar="PROFILE")],
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.CLI,
    data_parallel_size: Annotated[
        int, typer.Option(min=1, help="Ranks you serve with; vLLM drops a table above 1, so a fixed K is printed then.")
    ] = 1,
) -> None:
    """Print what to paste into vLLM, and into other tools.

    For vLLM: the value of `--speculative-config` (json), a `vllm serve` line (cli), a file for its `--config` (yaml),
    a container's arguments (compose, k8s). For other servers: TensorRT-LLM's draft_len_schedule (trtllm), SGLang's
    adaptive JSON (sglang). For other tools: acceptance as Model-Optimizer writes it (speculation-profile).

    Of an import, what its files do not tell is named, to be filled in.

    Exit code 0: a speculative config; 3: a fixed K, since vLLM drops the table under data parallelism; 4: speculation
    does not pay, the text goes without; 5: cannot tell yet, likewise.
    """
    from dsd_tune.emit.data_parallel import for_ranks, on_ranks
    from dsd_tune.emit.decision import on_capture_sizes, to_fill_in
    from dsd_tune.emit.formats import emit
    from dsd_tune.errors import EnvironmentUnfit
    from dsd_tune.storage import formats

    measured = formats.read(formats.PROFILE, profile)
    fitted, said, dropped = measured, tuple[str, ...](), tuple[str, ...]()
    if form.is_for_vllm:
        fitted = for_ranks(measured, data_parallel_size)
        dropped = on_ranks(measured, fitted, data_parallel_size)
        said = (*dropped, *_obedience(fitted), *on_capture_sizes(fitted), *to_fill_in(fitted))
    emission = emit(fitted, form, *said)
    code = 0 if form is Format.SPECULATION_PROFILE else fitted.decision.verdict.exit_code
    if code:
        left_out = "Leave --speculative-config out" if form.is_for_vllm else "Leave speculation off"
        typer.echo(f"Verdict: {fitted.decision.verdict}; {fitted.decision.reason}. {left_out}.", err=True)
    for remark in emission.remarks:
        typer.echo(f"Note: {remark}.", err=True)
    typer.echo(emission.text)
    raise typer.Exit(code or (EnvironmentUnfit.exit_code if dropped else 0))


def _obedience(profile: Profile) -> tuple[str, ...]:
    """Which vLLM the table needs, as one remark; nothing to say of a fixed K."""
    from dsd_tune.check.obedience import obeyed_since, obstacles

    deployment = _deployment(profile)
    if deployment is None or not deployment.has_table:
        return ()
    runner = f" on model runner {deployment.asked_runner.upper()}" if deployment.asked_runner else ""
    since = obeyed_since(deployment)
    if since is not None:
        return (f"vLLM {since} or later obeys this table{runner}{_way_to_runner(deployment)}",)
    in_the_way = obstacles(deployment)[0]
    return (f"No vLLM so far obeys this table{runner}: {in_the_way.reason} {in_the_way.mend.removesuffix('.')}",)


def _way_to_runner(deployment: Deployment) -> str:
    """How to get the runner that was measured, where vLLM would choose another."""
    from dataclasses import replace

    by_default = replace(deployment, asked_runner=None).runner
    if deployment.asked_runner in (None, by_default):
        return ""
    return f", which takes VLLM_USE_V2_MODEL_RUNNER={'0' if deployment.asked_runner == 'v1' else '1'}"


def _deployment(profile: Profile) -> Deployment | None:
    """The emitted command as `check` would see it under the newest vLLM, on the model runner that was measured."""
    from dsd_tune.check.command_line import deployment, from_words
    from dsd_tune.emit.serve_line import arguments
    from dsd_tune.engines.vllm_facts import NEWEST_READ

    settings = from_words(["vllm", "serve", *arguments(profile)])
    if "speculative-config" not in settings:
        return None
    environment = profile.environment
    runner = environment.runner.partition(",")[0] if environment else ""
    if runner in ("v1", "v2"):
        settings["model-runner"] = runner
    return deployment(settings, NEWEST_READ, cpu=environment is not None and environment.device == "cpu")
