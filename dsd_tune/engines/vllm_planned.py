"""What vLLM makes of a planned server: asked in a child process, so that nothing of vLLM is loaded here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dsd_tune.engines.vllm_drafter import check_models
from dsd_tune.engines.vllm_process import VllmProcess
from dsd_tune.errors import EngineFailed, EnvironmentUnfit, UsageError
from dsd_tune.records.configured import Configured


def configure(
    model: str, speculative_config: Mapping[str, object], flags: Sequence[str], environment: Mapping[str, str]
) -> Configured:
    """vLLM's own configuration for these flags, in which model and speculative config stand once more.

    Raises:
        UsageError: model or drafter are not there.
        EnvironmentUnfit: the drafter does not fit the model, or vLLM refuses.
    """
    check_models(model, speculative_config)
    with TemporaryDirectory() as folder:
        process = VllmProcess(Path(folder) / "configure.log")
        try:
            return process.configure(flags, environment)
        except UsageError as error:
            raise EnvironmentUnfit(error.what, error.todo) from error
        except EngineFailed as error:
            # The log goes with its folder.
            raise EnvironmentUnfit(error.what, "See what `vllm serve` says to the same flags.") from error
        finally:
            process.close()
