"""The decision as a whole `vllm serve` command, as words and as a line for a shell."""

from __future__ import annotations

import shlex

from dsd_tune.emit.decision import capture_flag, compact, engine_flags, max_num_seqs, model, speculative_config
from dsd_tune.emit.emission import Emission
from dsd_tune.records.profile import Profile


def arguments(profile: Profile) -> list[str]:
    """What follows `vllm serve`: the flags of the sweep, since they are part of what was measured."""
    own = ["--max-num-seqs", str(max_num_seqs(profile)), *capture_flag(profile)]
    words = [model(profile), *own, *engine_flags(profile)]
    config = speculative_config(profile)
    return words if config is None else [*words, "--speculative-config", compact(config)]


def write(profile: Profile) -> Emission:
    """One line, quoted for a POSIX shell."""
    return Emission(shlex.join(["vllm", "serve", *arguments(profile)]))
