"""Table of contents: every output format and who writes it. A decision comes in, text to paste comes out."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from dsd_tune.emit import (
    config_file,
    containers,
    decision,
    serve_line,
    sglang,
    speculation_profile,
    tensorrt_llm,
)
from dsd_tune.emit.emission import Emission
from dsd_tune.records.profile import Profile


class Format(StrEnum):
    """What can be emitted."""

    JSON = "json"
    CLI = "cli"
    YAML = "yaml"
    COMPOSE = "compose"
    K8S = "k8s"
    TRTLLM = "trtllm"
    SGLANG = "sglang"
    SPECULATION_PROFILE = "speculation-profile"

    @property
    def is_for_vllm(self) -> bool:
        """Whether vLLM reads it in the end."""
        return self in _VLLM

    @property
    def takes_comments(self) -> bool:
        """Whether remarks can travel in the text, each on a line of its own."""
        return self in _COMMENTED


_VLLM = frozenset({Format.JSON, Format.CLI, Format.YAML, Format.COMPOSE, Format.K8S})

_COMMENTED = frozenset({Format.YAML, Format.COMPOSE, Format.K8S, Format.TRTLLM})

_WRITERS: dict[Format, Callable[[Profile], Emission]] = {
    Format.JSON: decision.write,
    Format.CLI: serve_line.write,
    Format.YAML: config_file.write,
    Format.COMPOSE: containers.write_compose,
    Format.K8S: containers.write_kubernetes,
    Format.TRTLLM: tensorrt_llm.write,
    Format.SGLANG: sglang.write,
    Format.SPECULATION_PROFILE: speculation_profile.write,
}


def emit(profile: Profile, form: Format, *said: str) -> Emission:
    """The decision in one format. Remarks, what the caller has `said` before the format's own, go where they can.

    Raises:
        UsageError: this format cannot say what was decided.
    """
    emission = _WRITERS[form](profile)
    remarks = (*said, *emission.remarks)
    if not form.takes_comments:
        return Emission(emission.text, remarks)
    return Emission("\n".join([*map(_comment, remarks), emission.text]))


def _comment(remark: str) -> str:
    """On one line, whatever names the remark quotes."""
    return f"# {''.join(c for c in ' '.join(remark.split()) if c.isprintable())}."
