"""What may be validated, and with what."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_decided_profile

from dsd_tune.cli.trial_request import stated_request
from dsd_tune.errors import UsageError
from dsd_tune.records.profile import Profile, Verdict
from dsd_tune.records.validation import ValidationRequest


def _stated(profile: Profile, **options: Any) -> ValidationRequest:
    asked = {"concurrency": "1", "starts": 3, "duration_s": 1.0, "output_tokens": None, **options}
    return stated_request(profile, Path("profile.json"), [], **asked)


def test_an_import_is_refused() -> None:
    """Nobody knows what to serve."""
    imported = replace(a_decided_profile(), environment=None, request=None)
    with pytest.raises(UsageError, match="names no model"):
        _stated(imported)


@pytest.mark.parametrize("served_elsewhere", [False, True])
def test_cost_alone_is_refused(*, served_elsewhere: bool) -> None:
    """Without acceptance there is no fixed K, no table and no advice."""
    costs = a_decided_profile(Verdict.UNCLEAR, fixed_k=0)
    with pytest.raises(UsageError, match="advises nothing"):
        _stated(costs, served_elsewhere=served_elsewhere)


def test_a_self_check_needs_two_starts() -> None:
    """After one there is no telling, and an exit code of 0 would claim that nothing differs."""
    with pytest.raises(UsageError, match="Give --starts 2 or more"):
        _stated(a_decided_profile(), self_check=True, starts=1)
    assert _stated(a_decided_profile(), self_check=True, starts=2).starts == 2
