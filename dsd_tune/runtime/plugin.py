"""What vLLM calls in each of its processes (`vllm.general_plugins`). It imports `os` alone unless there is work."""

import os


def register() -> None:
    """Make vLLM follow the profile that `DSD_TUNE_PROFILE` names; do nothing if it is not set.

    Raises:
        Whatever goes wrong, and only if `DSD_TUNE_STRICT` is set.
    """
    if not os.environ.get("DSD_TUNE_PROFILE"):
        return
    from dsd_tune.runtime import hooks
    from dsd_tune.runtime.options import Options

    options = Options.from_environment()
    with options.harmless():
        hooks.install(options)
