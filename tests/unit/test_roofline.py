import pytest
from builders import an_environment

from dsd_tune.model.roofline import roofline_of, roofline_tokens


@pytest.mark.parametrize(
    ("device", "tokens"), [("NVIDIA H100 80GB HBM3", 295), ("NVIDIA A100-SXM4-80GB", 153), ("NVIDIA B200", 281)]
)
def test_a_known_gpu_has_its_ridge(device: str, tokens: int) -> None:
    """Peak FLOPs times bytes a weight over twice the bandwidth, in tokens."""
    assert roofline_tokens(an_environment(device_name=device, dtype="bfloat16")) == pytest.approx(tokens, abs=0.6)


@pytest.mark.parametrize("changed", [{"device_name": "AMD EPYC"}, {"dtype": "float32"}], ids=str)
def test_what_is_not_known_has_none(changed: dict[str, str]) -> None:
    """A device without a datasheet here, and weights of another width, get no number."""
    known = {"device_name": "NVIDIA H200", "dtype": "float16"}
    assert roofline_tokens(an_environment(**known))
    assert roofline_tokens(an_environment(**{**known, **changed})) is None


@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [
        ("GB200 x2", 312.5),
        ("NVIDIA H200", 206),
        ("8xH200, NVLink", 206),
        ("H100", None),
        ("A100 80GB", None),
        ("A100-SXM4-80GB", None),
        ("RTX 5090", None),
        ("", None),
    ],
)
def test_a_gpu_named_in_passing_counts_if_it_is_one(gpu: str, tokens: float | None) -> None:
    """Words around a GPU's name do not matter; a name that several GPUs share gives no number."""
    assert roofline_of(gpu) == (tokens and pytest.approx(tokens, abs=0.2))
