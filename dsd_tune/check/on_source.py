"""Findings about the vLLM that was looked at."""

from __future__ import annotations

from collections.abc import Iterator

from dsd_tune.check import rules_on_site as rules
from dsd_tune.engines.vllm_facts import NEWEST_READ
from dsd_tune.records.finding import Finding
from dsd_tune.records.source import VllmSource
from dsd_tune.records.trait import Trait


def on_source(source: VllmSource) -> Iterator[Finding]:
    """Where its files and its version disagree, the files are believed."""
    if not (source.additions or source.omissions):
        return
    known = " A newer vLLM than any read here may have renamed what was looked for." * (source.release > NEWEST_READ)
    parts = ((_codes(source.additions), "more"), (_codes(source.omissions), "less"))
    differences = " and ".join(f"{count}: {codes}" for codes, count in parts if codes)
    yield Finding(
        rules.UNLIKE_RELEASE,
        f"It calls itself {source.version or 'nothing'}, but what decides about tables is not as in {source.release} "
        f"({differences}). What follows goes by what was found.{known}",
        "Nothing, if it was patched on purpose. Otherwise reinstall it.",
    )


def _codes(traits: tuple[Trait, ...]) -> str:
    return ", ".join(trait.code for trait in traits)
