"""Cost without weights on a real vLLM: what it measures, and what it refuses before it measures anything."""

from pathlib import Path

import pytest
from engine.tiny_model import CONDITION, an_engine, make_drafter, make_experts, make_target

from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.records.measurement import Arm

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configurations and a tokenizer without any weights, and a mixture of experts likewise."""
    folder = tmp_path_factory.mktemp("models")
    make_target(folder / "target")
    make_drafter(folder / "eagle")
    make_experts(folder / "experts")
    for weights in folder.glob("*/*.safetensors"):
        weights.unlink()
    return folder


def test_cost_is_measured_without_weights(models: Path, tmp_path: Path) -> None:
    """With nothing but configurations every K is timed under its own number of drafts, and nothing is counted."""
    engine = an_engine(models, tmp_path, load_format="dummy")
    environment = engine.describe()
    assert (environment.load_format, environment.cost_only) == ("dummy", True)
    assert engine.alive_together == 1
    process = engine.start(Arm.DSD)
    try:
        for batch_size, k in [(4, 2), (4, 0), (1, 1)]:
            measured = process.measure(batch_size, k, condition=CONDITION, steps=5, settle=2)
            assert (len(measured.step_s), measured.steps_run, measured.prompts) == (5, 5, ())
    finally:
        process.close()


def test_a_mixture_of_experts_is_refused(models: Path, tmp_path: Path) -> None:
    """Which experts garbage needs says nothing about real text; vLLM's reading of the config tells."""
    with pytest.raises(EnvironmentUnfit, match="mixture of 4 experts"):
        an_engine(models, tmp_path, load_format="dummy", model=str(models / "experts")).describe()


def test_a_processor_cannot_state_acceptance(models: Path, tmp_path: Path) -> None:
    """vLLM's sampler for CPUs has no synthetic acceptance, which is said before a sweep starts, with the way out."""
    with pytest.raises(EnvironmentUnfit, match="does not support synthetic acceptance with CPU sampling"):
        an_engine(models, tmp_path, load_format="dummy", synthetic_acceptance=(0.7, 0.5)).describe()
