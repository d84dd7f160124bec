"""What the front of a server reads off vLLM's statistics, and what it exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from serving import a_fitting_profile, a_serving, a_vllm_config, write_profile

from dsd_tune.records.interval import Interval
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.profile import CellEstimate, PositionAcceptance, Profile
from dsd_tune.records.table import Table
from dsd_tune.runtime import options
from dsd_tune.runtime.expectation import Expectation, State
from dsd_tune.runtime.meter import Meter
from dsd_tune.runtime.metering import SETTLED, StepReader, StepSeen, size_range
from dsd_tune.runtime.options import Options
from dsd_tune.runtime.serving import Serving


def scheduler(running: int, drafted: Sequence[int] = (), accepted: Sequence[int] = ()) -> SimpleNamespace:
    """vLLM's `SchedulerStats`, always with three positions."""
    pad = [0] * (3 - len(drafted))
    drafts = SimpleNamespace(
        num_drafts=drafted[0] if drafted else 0,
        num_draft_tokens_per_pos=[*drafted, *pad],
        num_accepted_tokens_per_pos=[*accepted, *pad],
    )
    return SimpleNamespace(num_running_reqs=running, spec_decoding_stats=drafts if drafted else None)


def iteration(tokens: int, prompt_tokens: int = 0, finished: int = 0) -> SimpleNamespace:
    """vLLM's `IterationStats`."""
    return SimpleNamespace(
        num_generation_tokens=tokens, num_prompt_tokens=prompt_tokens, finished_requests=[None] * finished
    )


def a_step(**changed: Any) -> StepSeen:
    """A plain step of four requests at K=1, with `changed` fields."""
    return replace(StepSeen(4, 1, 0.02, plain=True, drafted=(4,), accepted=(2,)), **changed)


def a_measured_profile() -> Profile:
    """20 ms at batch size 4 and K=1, half of the first drafts accepted."""
    one = Interval(0.02, 0.02, 0.02)
    cell = CellEstimate(Cell(Arm.DSD, 4, 1), one, one, one, 2, 4, 0.9)
    return replace(a_fitting_profile(), cells=(cell,), acceptance=(acceptance(0.5),))


def acceptance(rate: float) -> PositionAcceptance:
    """That share of first drafts."""
    return PositionAcceptance(1, Interval(rate, rate - 0.1, rate + 0.1))


@pytest.mark.parametrize(
    ("stats", "generated", "k", "plain"),
    [
        (scheduler(4, [4, 4], [3, 1]), iteration(8), 2, True),
        (scheduler(3, [4, 4], [3, 1]), iteration(8, finished=1), 2, True),
        (scheduler(5, [4, 4], [3, 1]), iteration(9, prompt_tokens=7), 2, False),
        (scheduler(5, [4], [3]), None, 1, False),
        (scheduler(4), iteration(4), 0, True),
        (scheduler(4), iteration(3), 0, False),
        (scheduler(4), iteration(1, prompt_tokens=7), None, False),
        (scheduler(4), None, None, False),
    ],
)
def test_k_is_read_off_the_drafts(
    stats: SimpleNamespace, generated: SimpleNamespace | None, k: int | None, *, plain: bool
) -> None:
    """K is the deepest position drafted, 0 if requests decoded without, and unknown while all are prefilling."""
    step = StepReader().read(stats, generated, 0.0)
    assert step
    assert (step.k, step.plain) == (k, plain)
    assert len(step.drafted) == len(step.accepted) == (k or 0)


def test_a_step_lasts_since_the_one_before() -> None:
    """After a pause the first step has no duration; an idle engine makes no steps."""
    reader = StepReader()
    times = [(scheduler(2), 1.0), (scheduler(0), 1.5), (scheduler(0), 7.0), (scheduler(2), 9.0), (scheduler(2), 9.25)]
    steps = [reader.read(stats, iteration(2, finished=int(now == 1.5)), now) for stats, now in times]
    assert [step and step.step_s for step in steps] == [None, 0.5, None, None, 0.25]


@pytest.mark.parametrize(("size", "label"), [(1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (256, "129-256")])
def test_batch_sizes_are_labelled_by_ranges_that_double(size: int, label: str) -> None:
    """A handful of series for each K, however large the server."""
    assert size_range(size) == label


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, State.APPLIED),
        ({"step_s": 0.024}, State.APPLIED),
        ({"step_s": 0.027}, State.DRIFTED),
        ({"step_s": 0.012}, State.DRIFTED),
        ({"accepted": (1,)}, State.DRIFTED),
        ({"accepted": (3,)}, State.DRIFTED),
        ({"step_s": 0.2, "plain": False}, State.APPLIED),
        ({"step_s": 0.2, "batch_size": 5}, State.APPLIED),
        ({"step_s": None}, State.APPLIED),
    ],
)
def test_drift_is_a_lasting_difference_from_what_was_measured(changed: dict[str, Any], state: State) -> None:
    """Slower, faster, better or worse drafts; a step that the profile does not know is no evidence."""
    expectation = Expectation(a_measured_profile())
    for _ in range(SETTLED - 1):
        expectation.step_s(a_step(**changed))
        expectation.accepted(a_step(**changed))
    assert expectation.state is State.APPLIED
    expectation.step_s(a_step(**changed))
    expectation.accepted(a_step(**changed))
    assert expectation.state is state


def test_luck_is_no_drift() -> None:
    """One request at K=1 shows few drafts; healthy servers whose drafts are rarely accepted settle as applied."""
    random, profile = Random(0), replace(a_measured_profile(), acceptance=(acceptance(0.3),))
    for _ in range(50):
        expectation = Expectation(profile)
        for _ in range(SETTLED):
            expectation.accepted(a_step(batch_size=1, drafted=(1,), accepted=(int(random.random() < 0.3),)))
        assert expectation.state is State.APPLIED


def test_without_a_profile_nothing_is_expected() -> None:
    """A refused profile is compared with nothing."""
    expectation = Expectation(None)
    assert (expectation.step_s(a_step()), expectation.accepted(a_step()), expectation.state) == (None, 0, State.REFUSED)


@pytest.fixture
def meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Meter:
    """A meter of a server that the profile fits."""
    pytest.importorskip("prometheus_client")
    monkeypatch.setattr(Serving, "of", lambda _config: a_serving())
    monkeypatch.setattr(options, "_said", set())
    write_profile(tmp_path / "profile.json", a_measured_profile())
    return a_meter(tmp_path / "profile.json")


def a_meter(path: Path, policy: str = "table", **parallel: int) -> Meter:
    """A meter of engine 0 of the model `m`, which was started with the profile's table."""
    config = a_vllm_config([(1, 4, 2), (5, 16, 0)])
    config.parallel_config = SimpleNamespace(**parallel)
    config.model_config = SimpleNamespace(served_model_name="m")
    return Meter(config, [0], Options(path, policy))


def exported(name: str, **labels: str) -> float | None:
    """A sample as Prometheus would scrape it."""
    from prometheus_client import REGISTRY

    return REGISTRY.get_sample_value(f"dsd_tune:{name}", {"model_name": "m", "engine": "0", **labels})


def test_a_server_exports_what_its_steps_did(meter: Meter) -> None:
    """K, switches, steps by batch size and K, and acceptance at each position where something was drafted."""
    for stats in (scheduler(4, [4, 4], [3, 1]), scheduler(4, [4], [2]), scheduler(4, [4], [2])):
        meter.record(stats, iteration(6), 0)
    assert exported("k") == 1
    assert exported("k_switches_total") == 1
    assert exported("steps_total", batch_size="3-4", k="1") == 2
    assert [exported("drafted_total", position=p) for p in "12"] == [12, 4]
    assert [exported("accepted_total", position=p) for p in "12"] == [7, 1]
    assert exported("expected_accepted_total") == 6
    assert exported("predicted_step_seconds_total") == pytest.approx(0.04)
    assert exported("compared_step_seconds_total") == exported("step_seconds_total", batch_size="3-4", k="1")


def test_one_of_several_api_servers_times_no_steps(meter: Meter, tmp_path: Path) -> None:
    """It hears of some steps only, so what lies between two is no step time; drafts are counted all the same."""
    meter = a_meter(tmp_path / "profile.json", _api_process_count=2)
    for _ in range(3):
        meter.record(scheduler(4, [4], [2]), iteration(6), 0)
    assert exported("step_seconds_total", batch_size="3-4", k="1") is None
    assert exported("compared_step_seconds_total") is None
    assert exported("drafted_total", position="1") == 12


def test_a_server_shows_its_state_before_the_first_request(meter: Meter, tmp_path: Path) -> None:
    """A profile that fits is applied; one that cannot be read is refused; a second engine of a process starts anew."""
    assert [exported("state", state=state) for state in State] == [1, 0, 0]
    a_meter(tmp_path / "missing.json")
    assert [exported("state", state=state) for state in State] == [0, 1, 0]


def test_a_server_shows_what_its_engine_refuses(meter: Meter, tmp_path: Path) -> None:
    """A table with other Ks, and a fixed K that the engine was not started for."""
    profile = a_measured_profile()
    path = tmp_path / "profile.json"
    for refused, policy in [
        (a_fitting_profile(Table.from_dense([1] * 8 + [0] * 8)), "table"),
        (replace(profile, decision=replace(profile.decision, fixed_k=1)), "fixed"),
    ]:
        write_profile(path, refused)
        a_meter(path, policy)
        assert exported("state", state=State.REFUSED) == 1


def test_a_replaced_profile_changes_the_state(meter: Meter, tmp_path: Path) -> None:
    """What the engine refuses is shown as refused, until a fitting one comes."""
    for text, state in [("{", State.REFUSED), (None, State.APPLIED)]:
        if text is None:
            write_profile(tmp_path / "profile.json", a_measured_profile())
        else:
            (tmp_path / "profile.json").write_text(text)
        meter._renewal._due = 0.0
        meter.record(scheduler(1), iteration(1), 0)
        assert meter._renewal._reader
        meter._renewal._reader.join()
        meter.record(scheduler(1), iteration(1), 0)
        assert exported("state", state=state) == 1


def test_statistics_that_look_different_end_the_metrics(meter: Meter, caplog: pytest.LogCaptureFixture) -> None:
    """A field that this vLLM does not have costs one line, not a server."""
    for _ in range(3):
        meter.record(SimpleNamespace(), None, 0)
    meter.record(None, None, 0)
    assert ["no more metrics" in record.getMessage() for record in caplog.records] == [True]
