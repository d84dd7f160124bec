"""Which profile fits which vLLM, and what is said of one that does not."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import pytest
from serving import a_fitting_profile, a_serving, with_settings

from dsd_tune.errors import ProfileMismatch
from dsd_tune.records.profile import Verdict
from dsd_tune.records.table import Table
from dsd_tune.runtime.fitting import fitting_table


def test_the_measured_engine_fits() -> None:
    """Under what it was measured on, a profile gives its table."""
    profile = a_fitting_profile()
    assert fitting_table(profile, a_serving()) == profile.decision.table


def test_a_smaller_server_gets_its_part_of_the_table() -> None:
    """The table ends where vLLM's batches do."""
    assert fitting_table(a_fitting_profile(), a_serving(max_num_seqs=6)) == Table.from_dense([2, 2, 2, 2, 0, 0])


def test_the_first_of_two_runners_counts() -> None:
    """Where the engine without speculation had another runner, the table's engine is the one compared."""
    runner = a_serving().runner
    assert fitting_table(a_fitting_profile(runner=f"{runner}, no_spec v7"), a_serving())


def test_patch_releases_fit() -> None:
    """vLLM's behaviour changes with minor releases."""
    release = ".".join(a_serving().vllm_version.split(".")[:2])
    assert fitting_table(a_fitting_profile(), a_serving(vllm_version=f"{release}.7+g1234"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vllm_version": "0.31.0"}, r"measured with vLLM 0\.32, and this is 0\.31\. Measure again"),
        ({"runner": "v9"}, "measured with model runner"),
        ({"method": "eagle3"}, "measured with method eagle, and this is eagle3"),
        ({"device": "tpu"}, "measured with device"),
        ({"device_name": "Abacus 3000"}, "this is Abacus 3000"),
        ({"dtype": "float8"}, "this is float8"),
        ({"tensor_parallel_size": 8}, "measured with tensor_parallel_size 1, and this is 8"),
        ({"pipeline_parallel_size": 2}, "measured with pipeline_parallel_size 1, and this is 2"),
        ({"model": "another"}, "measured with the model target, and this is another"),
        ({"drafter": "another"}, "measured with the drafter"),
        ({"data_parallel_size": 2}, "data_parallel_size is 2"),
        ({"k_max": 1}, r"needs K=2, and num_speculative_tokens is 1\. Set num_speculative_tokens to 2\."),
        ({"max_num_seqs": 17}, r"measured up to batch size 16, and max_num_seqs is 17\. Set --max-num-seqs 16"),
        ({"max_num_seqs": 4}, r"is a fixed K=2\. Set num_speculative_tokens to 2\."),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], words: str) -> None:
    """Each key that differs is told with both values, each impossibility with the way out."""
    with pytest.raises(ProfileMismatch, match=words):
        fitting_table(a_fitting_profile(), a_serving(**changed))


def test_a_constant_k_of_zero_is_no_speculation() -> None:
    """Nobody should start an engine with speculation to use none of it."""
    profile = a_fitting_profile(Table.from_dense([0] * 4 + [2] * 12))
    with pytest.raises(ProfileMismatch, match="Leave --speculative-config out"):
        fitting_table(profile, a_serving(max_num_seqs=4))


def test_a_simulated_engine_fits_no_vllm() -> None:
    """Its version is a word, and compares like one."""
    with pytest.raises(ProfileMismatch, match="measured with vLLM none"):
        fitting_table(a_fitting_profile(vllm_version="none"), a_serving())


@pytest.mark.parametrize(
    ("verdict", "todo"),
    [
        (Verdict.FIXED, "Set num_speculative_tokens to 2"),
        (Verdict.OFF, "Leave --speculative-config out"),
        (Verdict.UNCLEAR, "Measure more"),
    ],
)
def test_another_verdict_is_no_table(verdict: Verdict, todo: str) -> None:
    """A profile that advises something else is not made into a table; what it advises is said."""
    profile = a_fitting_profile()
    with pytest.raises(ProfileMismatch, match=f"Its verdict is: {verdict}.*{todo}"):
        fitting_table(replace(profile, decision=replace(profile.decision, verdict=verdict)), a_serving())


def test_an_import_fits_nothing() -> None:
    """What numbers of others were measured on is not known."""
    with pytest.raises(ProfileMismatch, match="It is an import"):
        fitting_table(replace(a_fitting_profile(), environment=None, request=None), a_serving())


@pytest.mark.parametrize(("version", "fits"), [("0.31.2", False), ("0.32.0", True)])
def test_k_zero_is_kept_from_recurrent_layers_that_lose_their_state(version: str, *, fits: bool) -> None:
    """Up to vLLM 0.31 such a model's output would be silently wrong."""
    profile, serving = a_fitting_profile(vllm_version=version), a_serving(vllm_version=version, loses_state=True)
    if fits:
        assert fitting_table(profile, serving)
    else:
        with pytest.raises(ProfileMismatch, match="corrupts the output"):
            fitting_table(profile, serving)


def test_settings_of_the_drafter_are_compared() -> None:
    """A setting that the sweep had and the server has not is named."""
    profile = with_settings(a_fitting_profile(), draft_tensor_parallel_size=2)
    assert fitting_table(profile, a_serving(settings={"draft_tensor_parallel_size": 2}))
    with pytest.raises(ProfileMismatch, match="the drafter's draft_tensor_parallel_size 2, and this is 1"):
        fitting_table(profile, a_serving())


def test_settings_that_vllm_turns_into_members_are_compared_by_name() -> None:
    """An attention backend is a word in the sweep's config, in any case, and a member of an enumeration in vLLM's."""
    backend = Enum("Backend", ["FLASH_ATTN", "TRITON_ATTN"])
    profile = with_settings(a_fitting_profile(), attention_backend="flash_attn")
    assert fitting_table(profile, a_serving(settings={"attention_backend": backend.FLASH_ATTN}))
    with pytest.raises(ProfileMismatch, match="attention_backend flash_attn, and this is triton_attn"):
        fitting_table(profile, a_serving(settings={"attention_backend": backend.TRITON_ATTN}))


@pytest.mark.parametrize("key", ["enable_adaptive_verification", "parallel_drafting"])
def test_what_the_server_alone_sets_is_compared_where_it_matters(key: str) -> None:
    """What the sweep did not set had vLLM's default there; setting that is the same as not setting it."""
    profile = a_fitting_profile()
    assert fitting_table(profile, a_serving(settings={key: False, "quantization": "fp8"}))
    with pytest.raises(ProfileMismatch, match=f"the drafter's {key} False, and this is True"):
        fitting_table(profile, a_serving(settings={key: True}))


def test_what_a_method_brings_with_it_is_no_difference() -> None:
    """vLLM itself turns parallel drafting on for a block drafter."""
    profile = a_fitting_profile(method="dflash")
    assert fitting_table(profile, a_serving(method="dflash", settings={"parallel_drafting": True}))
