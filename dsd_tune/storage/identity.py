"""Whether what is to be measured belongs to a run that exists: the same request, in the same environment."""

from __future__ import annotations

from dataclasses import fields

from dsd_tune.errors import ProfileMismatch, UsageError
from dsd_tune.records.environment import Difference
from dsd_tune.records.run import Manifest, SweepRequest


def require_same_request(found: Manifest, request: SweepRequest, where: str) -> None:
    """Make sure that the run `found`, which is kept in `where`, was asked for by `request`.

    Raises:
        UsageError: it was not; names the keys.
    """
    pairs = [(f.name, getattr(found.request, f.name), getattr(request, f.name)) for f in fields(request)]
    differences = [Difference(name, left, right) for name, left, right in pairs if left != right]
    if differences:
        raise UsageError(
            f"{where} holds a run with another request ({_listed(differences)}).",
            "Ask for the same to resume it, or name another directory.",
        )


def require_same_run(found: Manifest, wanted: Manifest, where: str) -> None:
    """Make sure that blocks of `wanted` may stand among those of `found`, which is kept in `where`.

    Raises:
        UsageError: the requests differ; names the keys.
        ProfileMismatch: the environments differ; names the keys.
    """
    require_same_request(found, wanted.request, where)
    differences = found.environment.differences(wanted.environment)
    if differences:
        raise ProfileMismatch(
            f"{where} holds a run from another environment ({_listed(differences)}).",
            "Restore that environment to resume it, or name another directory.",
        )


def _listed(differences: list[Difference]) -> str:
    return "; ".join(map(str, differences))
