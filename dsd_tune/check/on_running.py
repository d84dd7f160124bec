"""Findings about a running server: does it speculate, and is a table seen at work?"""

from __future__ import annotations

from collections.abc import Iterator

from dsd_tune.check import rules_on_site as rules
from dsd_tune.check.deployment import Deployment
from dsd_tune.records.finding import Finding
from dsd_tune.records.running import RunningServer

_ENOUGH = 100
"""Drafts before their mean length is worth a word."""

_NEARLY_ALL = 0.98
"""Also at a fixed K some drafts are shorter: the last of each request."""

_PROBE = "let `dsd-tune probe` send some while the server is idle."


def on_running(server: RunningServer, deployment: Deployment | None) -> Iterator[Finding]:
    """`deployment` is what the server is meant to be; None if nobody said."""
    if server.k_max is None:
        yield Finding(
            rules.SERVER_WITHOUT_DRAFTER,
            f"{server.url} counts no drafts, so it was started without --speculative-config.",
            "Restart it with one, if it should speculate.",
        )
        return
    meant = deployment.k_max if deployment is not None else None
    if meant is not None and meant != server.k_max:
        yield Finding(
            rules.SERVER_OTHER_K_MAX,
            f"The server was started with num_speculative_tokens {server.k_max}, the config given here says {meant}.",
            "Give the config that the server runs, or restart it with this one.",
        )
    yield from _on_drafts(server, server.k_max)


def _on_drafts(server: RunningServer, k_max: int) -> Iterator[Finding]:
    mean = server.mean_k
    if mean is None or server.drafts < _ENOUGH:
        yield Finding(
            rules.SERVER_UNTRIED,
            f"{server.drafts} drafts since its start. Steps at K 0 are not counted, so their share cannot be told.",
            f"Ask again after traffic at every batch size of the table, or {_PROBE}",
        )
    elif mean >= _NEARLY_ALL * k_max:
        yield Finding(
            rules.SERVER_ALWAYS_K_MAX,
            f"{server.drafts} drafts had {mean:.2f} tokens on average, and the largest K is {k_max}. A table that asks "
            "for fewer (but not 0, which is not counted) was hardly used, or is not there.",
            f"Ask again after traffic at batch sizes with a smaller K, or {_PROBE}",
        )
    else:
        yield Finding(
            rules.SERVER_SHORTER_DRAFTS,
            f"{server.drafts} drafts had {mean:.2f} tokens on average, and the largest K is {k_max}: a table is at "
            "work, or this drafter (as n-gram matching) often proposes less.",
            "Nothing to do.",
        )
