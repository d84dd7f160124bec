from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import optuna
import pytest
from builders import a_block, a_failure, an_environment
from shared_study import REQUEST, VISITS

from dsd_tune.errors import UsageError
from dsd_tune.records.measurement import Arm, Block, Cell
from dsd_tune.records.visit import Visit
from dsd_tune.storage.run_directory import RunDirectory
from dsd_tune.studies.joining import take_part
from dsd_tune.studies.ledger import StudyLedger
from dsd_tune.studies.pulse import Watch

STORAGES = ["sqlite:///{}/study.db", "{}/journal.log"]

Part = Callable[..., Any]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """A journal: of all storages the quickest to make."""
    return f"{tmp_path}/journal.log"


@pytest.fixture
def part(tmp_path: Path, storage: str) -> Part:
    """Makes a worker's part in the one study, by the name of its directory; it begins the study unless it joins."""

    def part(name: str, *, join: bool = True, storage: str = storage, **changed: Any) -> Any:
        path = tmp_path / name / "run"
        return take_part(path, REQUEST, an_environment, storage=storage, join=join, **changed)

    return part


@pytest.fixture
def two(part: Part) -> Iterator[tuple[StudyLedger, StudyLedger]]:
    """Two workers that take part."""
    with part("a", join=False) as first, part("b") as second:
        yield first, second


def _block(visit: Visit, number: int = 0, **changed: Any) -> Block:
    """The block number `number` of a visit."""
    place = {
        "cell": Cell(Arm.DSD, visit.batch_size, number % 3),
        "stop": visit.batch_size,
        "repetition": visit.repetition,
        "round": number // 3,
        "slot": 7,
        "taken_at_s": 10.0 + number,
    }
    return a_block(**(place | changed))


def test_what_one_worker_measured_all_know(two: tuple[StudyLedger, StudyLedger], tmp_path: Path) -> None:
    """A sample is on its worker's disk and in every worker's list as soon as it is kept, to the same digit."""
    first, second = two
    assert first.claim(VISITS[0])
    first.append(_block(VISITS[0], step_s=(0.0212345678901,)))
    first.append(a_failure(cell=Cell(Arm.DSD, 1, 1), phase=VISITS[0].phase, stop=1, repetition=0))
    assert first.samples() == second.samples()
    assert first.samples() == RunDirectory.open(tmp_path / "a" / "run").samples()
    assert isinstance(first.samples()[0], Block)
    assert len(first.samples()) == 2


def test_a_claimed_visit_is_nobody_elses(two: tuple[StudyLedger, StudyLedger]) -> None:
    """A visit that one worker has is under way for the other, which gets another one."""
    first, second = two
    assert first.claim(VISITS[0])
    assert first.claim(VISITS[0])
    assert not second.claim(VISITS[0])
    assert second.claim(VISITS[1])
    assert (first.under_way(), second.under_way()) == ({VISITS[1]}, {VISITS[0]})


def test_a_visit_that_was_made_is_not_made_again(two: tuple[StudyLedger, StudyLedger]) -> None:
    """Whoever comes with an old plan learns that the visit is over."""
    first, second = two
    first.claim(VISITS[0])
    first.append(_block(VISITS[0]))
    first.finish(VISITS[0], 0.02)
    assert not second.claim(VISITS[0])
    assert second.under_way() == frozenset()


@pytest.mark.parametrize("storage", STORAGES)
def test_of_many_workers_at_once_one_gets_the_visit(part: Part, tmp_path: Path, storage: str) -> None:
    """Six workers that claim the same visits in the same moment never share one, and leave none."""
    where = storage.format(tmp_path)
    workers, barrier = 6, Barrier(6)

    def claim_all(ledger: StudyLedger) -> list[bool]:
        won = []
        for visit in VISITS:
            barrier.wait()
            won.append(ledger.claim(visit))
        return won

    with ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        ledgers = [stack.enter_context(part(str(n), join=n > 0, storage=where)) for n in range(workers)]
        won = list(pool.map(claim_all, ledgers))
    assert [sum(column) for column in zip(*won, strict=True)] == [1] * len(VISITS)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_whoever_leaves_gives_back_its_visits(part: Part, error: type[BaseException] | None) -> None:
    """A visit not finished is free at once when its worker ends, by itself or by Ctrl-C; what it measured counts."""

    def leave_early() -> None:
        with part("b") as second:
            second.claim(VISITS[0])
            second.append(_block(VISITS[0]))
            if error:
                raise error

    with part("a", join=False) as first:
        if error:
            with pytest.raises(error):
                leave_early()
        else:
            leave_early()
        assert first.samples() == [_block(VISITS[0])]
        assert first.claim(VISITS[0])


def test_a_worker_that_fell_silent_loses_its_visit(part: Part) -> None:
    """A claim without signs of life expires, its samples count, and another worker takes what is left."""
    with part("a", join=False) as first, part("b", interval_s=1e6) as second:
        second.claim(VISITS[0])
        second.append(_block(VISITS[0]))
        assert first.under_way() == {VISITS[0]}
        first._watch._grace_s = -1.0
        assert first.under_way() == frozenset()
        assert first.claim(VISITS[0])
        assert first.samples() == [_block(VISITS[0])]


def test_a_worker_wrongly_taken_for_dead_loses_nothing(part: Part) -> None:
    """It goes on measuring, all of it counts, and a turn that was taken twice meanwhile counts once."""
    with part("a", join=False) as first, part("b", interval_s=1e6) as second:
        second.claim(VISITS[0])
        first._watch = Watch(grace_s=-1.0)
        assert first.claim(VISITS[0])
        first.append(_block(VISITS[0], 0))
        second.append(_block(VISITS[0], 0, taken_at_s=99.0))
        second.append(_block(VISITS[0], 1))
        second.finish(VISITS[0], 0.02)
        first.finish(VISITS[0], 0.02)
        assert first.samples() == second.samples() == [_block(VISITS[0], 0), _block(VISITS[0], 1)]


def test_others_are_awaited_until_one_of_them_has_done_something(
    two: tuple[StudyLedger, StudyLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting ends when another worker ends a visit, and at once where there is nobody to wait for."""
    first, second = two
    assert not first.await_others()
    second.claim(VISITS[0])
    monkeypatch.setattr("dsd_tune.studies.ledger.time.sleep", lambda _: second.finish(VISITS[0], None))
    assert first.await_others()
    assert not first.await_others()


def test_what_only_the_disk_has_is_shared_on_return(part: Part, tmp_path: Path) -> None:
    """A worker that died between its disk and the study shares its last block when it goes on; once."""
    with part("a", join=False) as first:
        first.claim(VISITS[0])
        first.append(_block(VISITS[0], 0))
    RunDirectory.open(tmp_path / "a" / "run").append(_block(VISITS[0], 1))
    with part("b") as second:
        assert len(second.samples()) == 1
        for _ in range(2):
            with part("a"):
                assert second.samples() == [_block(VISITS[0], 0), _block(VISITS[0], 1)]


def test_a_run_outlives_its_storage(part: Part, tmp_path: Path) -> None:
    """Where the storage is gone, or another one is named, a run goes on with all its samples in a new study."""
    with part("a", join=False) as first:
        for number in range(4):
            visit = VISITS[number // 2]
            first.claim(visit)
            first.append(_block(visit, number))
    (tmp_path / "journal.log").unlink()
    with part("a", join=False) as again:
        assert again.samples() == [_block(VISITS[number // 2], number) for number in range(4)]


def test_engine_starts_have_numbers_of_their_own(part: Part) -> None:
    """No two starts share a number: of two workers, of a worker that goes on, and of samples that came with it."""
    numbers = []
    with part("a", join=False) as first, part("b") as second:
        numbers += [ledger.new_start() for ledger in (first, second, first, second)]
        first.claim(VISITS[0])
        first.append(_block(VISITS[0], slot=2000, start=2001))
    with part("a") as again:
        numbers += [again.new_start() for _ in range(3)]
    assert len({*numbers, 2000, 2001}) == 9


def test_samples_of_a_worker_stand_together(two: tuple[StudyLedger, StudyLedger]) -> None:
    """However two workers alternate, each one's samples stand in a row in its own order, whatever the clocks say."""
    first, second = two
    times = {first: [5.0, 3.0, 9.0], second: [4.0, 6.0, 7.0]}
    for ledger, visit in ((first, VISITS[0]), (second, VISITS[1])):
        ledger.claim(visit)
    for number in range(3):
        for ledger, visit in ((second, VISITS[1]), (first, VISITS[0])):
            ledger.append(_block(visit, number, taken_at_s=times[ledger][number]))
    assert [sample.taken_at_s for sample in first.samples()] == [*times[second], *times[first]]
    assert first.samples() == second.samples()


def test_every_worker_takes_the_whole_result_home(part: Part, tmp_path: Path) -> None:
    """After a run each directory holds the samples of all workers, as if one had measured them."""
    with part("a", join=False) as first, part("b") as second:
        for ledger, visit in ((first, VISITS[0]), (second, VISITS[1])):
            ledger.claim(visit)
            ledger.append(_block(visit))
            ledger.finish(visit, 0.02)
    a, b = (RunDirectory.open(tmp_path / name / "run") for name in "ab")
    assert a.samples() == b.samples()
    assert len(a.samples()) == 2
    assert a.manifest == b.manifest


def test_a_dashboard_shows_what_a_visit_found(two: tuple[StudyLedger, StudyLedger]) -> None:
    """A trial's parameters say what was measured, its values the TPOT in milliseconds: the best, and that of each K.

    A reference cell that was timed at another batch size is no K of the visit.
    """
    ledger, _ = two
    ledger.claim(VISITS[0])
    ledger.append(_block(VISITS[0], 2, step_s=(0.02,), prompts=()))
    ledger.append(_block(VISITS[0], 5, step_s=(0.9,), prompts=(), cell=Cell(Arm.DSD, 16, 2)))
    ledger.finish(VISITS[0], 0.0151234567)
    ledger.claim(VISITS[1])
    ledger.finish(VISITS[1], None)
    (made,) = ledger._study.trials("COMPLETE")
    assert made.params["batch_size"] == VISITS[0].batch_size
    assert made.params["arms"] == "no_spec dsd"
    assert (made.value, made.intermediate_values) == (15.123, {2: 20.0})
    assert list(made.user_attrs) == ["worker", "seen alive"]
    (failed,) = ledger._study.trials("FAIL")
    assert failed.user_attrs["outcome"] == "nothing could be measured"
    study = optuna.load_study(study_name=ledger._study.name, storage=ledger._study.storage)
    assert study.metric_names == ["best TPOT (ms)"]


def test_a_damaged_sample_is_named(part: Part) -> None:
    """What is no sample of ours is refused with its trial and study, and not passed over."""

    def damage() -> None:
        with part("a", join=False) as ledger:
            study, trial = ledger._study, ledger._hold(VISITS[0])
            study.storage.set_trial_system_attr(study._id(trial), "dsd_tune:sample:5", {"block": 1})
            ledger.samples()

    with pytest.raises(UsageError, match=r"Trial 1 of the study run in .*, dsd_tune:sample:5, is no dsd-tune samples"):
        damage()


def test_a_damaged_trial_is_named(part: Part) -> None:
    """A running trial that is no visit is refused by its number."""

    def damage() -> None:
        with part("a", join=False) as ledger:
            ledger._study.storage.create_new_trial(ledger._study.id)
            ledger.under_way()

    with pytest.raises(UsageError, match=r"Trial 1 of the study run in .* is damaged: it has no parameter 'phase'"):
        damage()
