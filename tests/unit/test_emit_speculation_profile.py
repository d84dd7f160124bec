import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from builders import a_decided_profile
from hypothesis import given
from hypothesis import strategies as st

from dsd_tune.emit.formats import Format, emit
from dsd_tune.errors import UsageError
from dsd_tune.records.interval import Interval
from dsd_tune.records.profile import AcceptanceLength, PositionAcceptance, Profile, Verdict

RATES = (0.816082, 0.633750, 0.475053)
"""Of nvidia/MiniMax-M2.7-DFlash on MT-Bench, as Model-Optimizer's own pull request 2247 states them."""


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


def _profile(rates: tuple[float, ...] = RATES, lengths: dict[int, float] | None = None, **environment: Any) -> Profile:
    lengths = lengths if lengths is not None else {k: 1 + sum(rates[:k]) for k in range(len(rates) + 1)}
    return replace(
        a_decided_profile(**environment),
        acceptance=tuple(PositionAcceptance(i, _exactly(rate)) for i, rate in enumerate(rates, start=1)),
        acceptance_lengths=tuple(AcceptanceLength(k, _exactly(tokens)) for k, tokens in lengths.items()),
    )


def _document(profile: Profile) -> Any:
    return json.loads(emit(profile, Format.SPECULATION_PROFILE).text)


def test_agrees_with_model_optimizers_own_numbers() -> None:
    """Marginal rates that NVIDIA published give the conditional rates and the mean that it published with them."""
    document = _document(_profile(method="dflash"))
    assert document["marginal_accept_rates"] == list(RATES)
    assert document["conditional_accept_rates"] == pytest.approx([0.816082, 0.776577, 0.749591], abs=2e-6)
    assert document["mean_accept_length"] == pytest.approx(2.924887, abs=3e-6)
    assert document["num_speculative_tokens"] == document["max_supported_k"] == 3
    assert document["validation"]["mean_consistency"]["passed"]


def test_every_field_of_the_schema_is_there() -> None:
    """Schema 1.0 has these fields in this order; what a profile of ours does not hold is null."""
    document = _document(_profile())
    assert list(document) == [
        "schema_version",
        "measured",
        "method",
        "draft_checkpoint",
        "target_model",
        "num_speculative_tokens",
        "block_size",
        "max_supported_k",
        "verification_method",
        "conditional_accept_rates",
        "marginal_accept_rates",
        "mean_accept_length",
        "mean_accept_length_per_request",
        "accept_length_model",
        "accept_length_by_k",
        "acceptance_length_histogram",
        "per_category",
        "measurement_conditions",
        "validation",
    ]
    empty = {"block_size", "mean_accept_length_per_request", "acceptance_length_histogram", "per_category"}
    assert {name for name, value in document.items() if value is None} == empty


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_rates_are_probabilities_whatever_was_measured(rates: list[float]) -> None:
    """Marginal rates never rise, both kinds lie between 0 and 1, and a correction is said."""
    emission = emit(_profile(tuple(rates)), Format.SPECULATION_PROFILE)
    document = json.loads(emission.text)
    marginal, conditional = document["marginal_accept_rates"], document["conditional_accept_rates"]
    assert all(left >= right for left, right in pairwise(marginal))
    assert all(0 <= rate <= 1 for rate in marginal + conditional)
    assert len(marginal) == len(conditional) == len(rates)
    assert bool(emission.remarks) is any(left < right for left, right in pairwise(rates))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("eagle3", "chain_analytic"),
        ("draft_model", "chain_analytic"),
        ("dflash", "measured_per_k"),
        ("mtp", "measured_per_k"),
    ],
)
def test_only_chains_extrapolate_over_k(method: str, expected: str) -> None:
    """A drafter whose first tokens may depend on K does not claim that one measurement serves every K."""
    assert _document(_profile(method=method))["accept_length_model"] == expected


def test_lengths_by_k_leave_out_k_0() -> None:
    """Each K that drafts has the length measured at it, and a mean that the rates do not explain is marked."""
    document = _document(_profile(lengths={0: 1.0, 1: 1.7, 3: 2.5}, method="dflash"))
    assert document["accept_length_by_k"] == {"1": 1.7, "3": 2.5}
    assert document["mean_accept_length"] == 2.5
    assert not document["validation"]["mean_consistency"]["passed"]


def test_no_folder_of_this_machine_is_published() -> None:
    """Of a path only the last two parts remain."""
    document = _document(_profile(model="/home/me/models/org/target", drafter="org/drafter"))
    assert document["target_model"]["id"] == "org/target"
    assert document["draft_checkpoint"]["id"] == "org/drafter"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_acceptance_does_not_depend_on_the_verdict(verdict: Verdict) -> None:
    """A drafter that does not pay here is described like any other."""
    profile = replace(_profile(), decision=a_decided_profile(verdict).decision)
    assert _document(profile) == _document(_profile())


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [(_profile(method="ngram"), "ngram has none"), (_profile(()), "no acceptance by position")],
    ids=["no drafter", "nothing measured"],
)
def test_nothing_is_invented(profile: Profile, complaint: str) -> None:
    """Without a drafter or without measured positions there is an error and no document."""
    with pytest.raises(UsageError, match=complaint):
        emit(profile, Format.SPECULATION_PROFILE)
