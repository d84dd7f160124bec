"""What an operator asks of the runtime, in environment variables: the only channel into all of vLLM's processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsd_tune.errors import DsdTuneError
from dsd_tune.runtime.policies.choice import PolicyName

# A child of vLLM's own logger: its lines look like vLLM's and go where those go.
LOG = logging.getLogger("vllm.dsd_tune")

_said: set[str] = set()


@dataclass(frozen=True, slots=True)
class Options:
    """`DSD_TUNE_PROFILE`, `DSD_TUNE_POLICY` and `DSD_TUNE_STRICT`."""

    profile: Path
    policy: str = PolicyName.TABLE.value
    strict: bool = False

    @classmethod
    def from_environment(cls) -> Options:
        """As they are set now; `DSD_TUNE_PROFILE` must be."""
        return cls(
            Path(os.environ["DSD_TUNE_PROFILE"]),
            os.environ.get("DSD_TUNE_POLICY") or PolicyName.TABLE.value,
            os.environ.get("DSD_TUNE_STRICT", "") not in {"", "0"},
        )

    @contextmanager
    def harmless(self, outcome: str = "is not applied; vLLM runs as without it.") -> Iterator[None]:
        """Turn whatever goes wrong inside into one line in the log with its outcome, unless it should stop vLLM."""
        try:
            yield
        except Exception as error:
            if self.strict:
                raise
            reason = str(error) if isinstance(error, DsdTuneError) else f"{error!r}. Please report this."
            say(f"{self.profile} {outcome} {reason}")

    def refuse_new(self, error: Exception) -> None:
        """Say why a replaced profile is not taken."""
        LOG.warning("dsd-tune: the new %s is not taken, what ran before goes on. %s", self.profile, error)


def say(line: str, level: int = logging.WARNING) -> None:
    """Log a line, once in this process: vLLM builds some of its configurations several times."""
    if line not in _said:
        _said.add(line)
        LOG.log(level, "dsd-tune: %s", line)
