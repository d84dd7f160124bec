"""The closed list of what only `doctor` can find, as it looks at a machine or asks a server.

`docs/findings.md` says the same in prose; a test keeps the two in step.
"""

from __future__ import annotations

from dsd_tune.records.finding import Rule, Severity

# This machine: the vLLM, the drafter and the hardware.
UNLIKE_RELEASE = Rule(
    "vllm-unlike-release", Severity.WARNING, "The sources of this vLLM are not those of the release that it names."
)
CONFIG_REFUSED = Rule("config-refused", Severity.ERROR, "vLLM refuses the model, the drafter or a flag.")
TABLE_DROPPED = Rule("table-dropped", Severity.ERROR, "vLLM's own configuration has lost the table.")
DRAFTER_CONTEXT = Rule(
    "drafter-context",
    Severity.WARNING,
    "The drafter takes shorter contexts than the model.",
    reference="vllm #52756",
)
MEMORY_TAKEN = Rule("memory-taken", Severity.ERROR, "Less memory is free than vLLM would claim at start.")
GPU_SLOWED = Rule("gpu-slowed", Severity.WARNING, "A GPU lowers its clock for heat or power.")
GPU_POWER_CAPPED = Rule("gpu-power-capped", Severity.NOTE, "A GPU's power limit is not its default.")
CPU_PRELOAD = Rule("cpu-preload", Severity.WARNING, "Libraries that vLLM wants preloaded on a CPU are not.")

# A running server.
SERVER_WITHOUT_DRAFTER = Rule("server-without-drafter", Severity.ERROR, "The server runs without speculation.")
SERVER_OTHER_K_MAX = Rule("server-other-k-max", Severity.ERROR, "The server runs another num_speculative_tokens.")
SERVER_UNTRIED = Rule("server-untried", Severity.NOTE, "The server has drafted too little to tell.")
SERVER_ALWAYS_K_MAX = Rule("server-always-k-max", Severity.WARNING, "Nearly every draft had the largest K.")
SERVER_SHORTER_DRAFTS = Rule("server-shorter-drafts", Severity.NOTE, "Some drafts were shorter than the largest K.")

RULES = tuple(value for value in globals().values() if isinstance(value, Rule))
