"""Model-Optimizer's acceptance, read back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_decided_profile

from dsd_tune.emit.formats import Format, emit
from dsd_tune.errors import UsageError
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Found
from dsd_tune.importers.recognise import read_measurements
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import AcceptanceLength, PositionAcceptance

RATES = (0.816082, 0.633750, 0.475053)
"""Of nvidia/MiniMax-M2.7-DFlash on MT-Bench, as Model-Optimizer's own pull request 2247 states them."""


def a_document(**changed: Any) -> dict[str, Any]:
    """What Model-Optimizer writes after one run at K=3, with `changed` fields."""
    document = {
        "schema_version": "1.0",
        "measured": True,
        "method": "eagle3",
        "target_model": {"id": "org/target"},
        "num_speculative_tokens": 3,
        "verification_method": "longest_prefix",
        "marginal_accept_rates": list(RATES),
        "mean_accept_length": 2.924885,
        "accept_length_model": "chain_analytic",
        "accept_length_by_k": {"3": 2.924885},
    }
    return document | changed


def read(folder: Path, document: object) -> Found:
    """What an import finds in the document."""
    path = folder / "speculation_profile.json"
    path.write_text(json.dumps(document))
    (found,) = read_measurements([path], Declared())
    return found


def lengths(found: Found) -> dict[int, float]:
    """Acceptance length by K."""
    return {item.k: round(item.length, 4) for item in found.acceptance}


def test_a_chain_tells_every_smaller_k(tmp_path: Path) -> None:
    """The first drafts of EAGLE do not depend on K, so one run at 3 tells 1 and 2 as well, with their rates."""
    found = read(tmp_path, a_document())
    assert lengths(found) == {1: 1.8161, 2: 2.4498, 3: 2.9249}
    assert found.acceptance[1].rates == RATES[:2]
    assert [(fact.key, fact.value) for fact in found.facts] == [("method", "eagle3")]
    assert "org/target" in found.remarks[0]


def test_a_block_drafter_tells_the_ks_that_were_measured(tmp_path: Path) -> None:
    """The first drafts of DFlash may depend on K: nothing is inferred for another one."""
    document = a_document(method="dflash", accept_length_model="measured_per_k")
    assert lengths(read(tmp_path, document)) == {3: 2.9249}


def test_rates_that_contradict_the_mean_are_left_out(tmp_path: Path) -> None:
    """Rates that were cut short describe a weaker drafter than was measured: its length stands, and nothing follows."""
    found = read(tmp_path, a_document(marginal_accept_rates=list(RATES[:2])))
    assert lengths(found) == {3: 2.9249}
    assert found.acceptance[0].rates == ()


@pytest.mark.parametrize("method", ["eagle", "dflash"])
def test_what_is_emitted_is_read_back(tmp_path: Path, method: str) -> None:
    """The acceptance of a sweep, emitted and imported, has the same length at every K and the same rates."""
    by_k = {k: 1 + sum(RATES[:k]) for k in range(1, 4)}
    profile = replace(
        a_decided_profile(method=method),
        acceptance=tuple(PositionAcceptance(i, Interval(rate, rate, rate)) for i, rate in enumerate(RATES, 1)),
        acceptance_lengths=tuple(AcceptanceLength(k, Interval(n, n, n)) for k, n in by_k.items()),
    )
    found = read(tmp_path, json.loads(emit(profile, Format.SPECULATION_PROFILE).text))
    assert lengths(found) == {k: round(length, 4) for k, length in by_k.items()}
    assert [item.rates for item in found.acceptance] == [RATES[:1], RATES[:2], RATES]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"schema_version": "2.0"}, "has schema 2.0"),
        ({"measured": False}, "nothing was measured"),
        ({"verification_method": "block"}, "was verified by block"),
        ({"marginal_accept_rates": None}, "marginal_accept_rates is no list"),
        ({"marginal_accept_rates": [True]}, "True is no number"),
        ({"accept_length_by_k": [3]}, "accept_length_by_k is no object"),
        ({"accept_length_by_k": {"three": 2.9}}, "invalid literal"),
        ({"accept_length_by_k": {"3": 9.0}}, "lies in 1 to 4, got 9"),
        ({"accept_length_by_k": {}, "accept_length_model": "measured_per_k"}, "no acceptance length"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, changed: dict[str, Any], complaint: str) -> None:
    """A later schema, a placeholder, another way to verify and bad numbers are each refused by file and reason."""
    with pytest.raises(UsageError, match=complaint) as refused:
        read(tmp_path, a_document(**changed))
    assert refused.value.what.startswith("speculation_profile.json")
