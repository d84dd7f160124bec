"""What vLLM calls in each of its processes (`vllm.general_plugins`). It imports `os` alone unless there is work."""

import os


def register() -> None:
    """Do nothing unless `DSD_TUNE_PROFILE` is set; then say that a profile is not applied here yet. Never raises."""
    profile = os.environ.get("DSD_TUNE_PROFILE")
    if not profile:
        return
    import logging

    logging.getLogger("dsd_tune").warning(
        "DSD_TUNE_PROFILE=%s is not applied: this plugin does not set K yet. "
        "Pass the table that `dsd-tune emit-config` prints to vLLM instead.",
        profile,
    )
