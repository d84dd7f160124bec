"""From a run of one machine to one that may be shown to anyone: no paths in it, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile
from dsd_tune.records.published import ORIGIN, Fact, Published
from dsd_tune.storage import naming

T = TypeVar("T")
F = TypeVar("F", Published, Profile)


def without_paths(record: T, names: Mapping[str, str]) -> T:
    """The record with `names` in place of paths, and of what lies in them. Digests stay: they tell what it was.

    Raises:
        UsageError: a path is left.
    """
    told = naming.renamed(record, names)
    left = naming.paths(told)
    if left:
        raise UsageError(
            f"{left[0]} is a path of this machine, and says nothing elsewhere.", f"Name it: --name {left[0]}=NAME."
        )
    return told


def with_origin(record: F, stated: Mapping[str, str]) -> F:
    """An import or its profile with what is `stated` of its `ORIGIN` among its facts.

    Raises:
        UsageError: where it comes from is still not known.
    """
    known = {**{fact.key: fact.value for fact in record.facts}, **stated}
    missing = [key for key in ORIGIN if key not in known]
    if missing:
        raise UsageError(
            f"numbers of others need a {' and a '.join(missing)}.",
            f"Say it: {' '.join(f'--{key} TEXT' for key in missing)}.",
        )
    return replace(record, facts=tuple(Fact(key, value) for key, value in known.items()))
