"""Records of imported numbers, and their file."""

from pathlib import Path
from typing import Any

import pytest

from dsd_tune.errors import UsageError
from dsd_tune.importers.counters import Counters, acceptance, tokens_per_step, undrafted_share
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.found import Running
from dsd_tune.records.measurement import Arm, Cell
from dsd_tune.records.published import Fact, Published, PublishedAcceptance, PublishedRow
from dsd_tune.storage import formats
from dsd_tune.storage import published as storage

ROW = PublishedRow(Cell(Arm.STATIC, 4, 2), 0.02, 0.01, PublishedAcceptance(2, 2.0, (0.6, 0.4), 100, "x.json"), "x.json")
PUBLISHED = Published((ROW,), (), (Fact("model", "m"),), 0.02, 0.08, ("one left out",), 1.5, "0.1.0")


def test_import_survives_the_disk(tmp_path: Path) -> None:
    """What is saved is what is loaded."""
    path = storage.save(tmp_path / "run", PUBLISHED, force=False)
    assert path.name == "published.json"
    assert storage.load(tmp_path / "run") == PUBLISHED
    assert storage.is_import(tmp_path / "run")


def test_first_version_still_loads() -> None:
    """An import that version 1 wrote is read as it was meant."""
    golden = Path(__file__).parents[1] / "data" / "imports" / "golden" / "published-1.json"
    assert formats.read(formats.PUBLISHED, golden) == PUBLISHED


def test_import_stays_out_of_other_directories(tmp_path: Path) -> None:
    """A directory that holds something else is refused, with --force too."""
    (tmp_path / "notes.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match="not empty"):
            storage.save(tmp_path, PUBLISHED, force=force)


@pytest.mark.parametrize(
    "changed",
    [
        {"k": 0},
        {"length": 0.9},
        {"length": 3.1},
        {"rates": (0.5,)},
        {"rates": (60.0, 40.0)},
        {"drafts": 0},
    ],
)
def test_impossible_acceptance_is_refused(changed: dict[str, Any]) -> None:
    """Acceptance outside 1 to K+1, percentages, and rates for other positions than K are refused."""
    fields: dict[str, Any] = {"k": 2, "length": 2.0, "rates": (0.6, 0.4), "drafts": 10, "source": "x"}
    PublishedAcceptance(**fields)
    with pytest.raises(ValueError, match=r"K|rate|drafts"):
        PublishedAcceptance(**fields | changed)


def test_row_needs_a_time_and_its_own_k() -> None:
    """A row without any time, or with acceptance at another K, is refused."""
    with pytest.raises(ValueError, match="needs a positive step time or TPOT"):
        PublishedRow(Cell(Arm.NO_SPEC, 1, 0), None, None, None, "x")
    with pytest.raises(ValueError, match="cannot carry acceptance at K=2"):
        PublishedRow(Cell(Arm.STATIC, 1, 1), None, 0.01, ROW.acceptance, "x")


def test_import_is_never_empty_or_ambiguous() -> None:
    """An import without numbers, with two values of one fact, or with impossible deviations is refused."""
    with pytest.raises(ValueError, match="at least one number"):
        Published((), (), (), 0.02, 0.02, (), 1.0, "0.1.0")
    with pytest.raises(ValueError, match="one value"):
        Published((ROW,), (), (Fact("a", "1"), Fact("a", "2")), 0.02, 0.02, (), 1.0, "0.1.0")
    with pytest.raises(ValueError, match="deviations"):
        Published((ROW,), (), (), 0.0, 0.02, (), 1.0, "0.1.0")


def test_declarations_keep_arms_apart() -> None:
    """K of 1 or more never ran without speculation, and K=0 is no fixed K."""
    with pytest.raises(ValueError, match="cannot be no_spec"):
        Declared(arm=Arm.NO_SPEC)
    with pytest.raises(ValueError, match="cannot be static"):
        Declared(k0=Arm.STATIC)


def test_last_drafts_may_be_short() -> None:
    """Drafts cut at the end of requests (259 tokens in 87 drafts of 3) are one K, and half as many are not."""
    assert acceptance(Counters(87, 259, 167), None, None, "x").k == 3
    with pytest.raises(UsageError, match="more than one K"):
        acceptance(Counters(87, 130, 100), None, None, "x")


def test_stated_k_must_fit_the_counters() -> None:
    """Counters of K=3 are refused for a row that says K=5."""
    with pytest.raises(UsageError, match="for K=5"):
        acceptance(Counters(100, 300, 100), 5, None, "x")


def test_undrafted_steps_count_whatever_the_method() -> None:
    """Where a third of the tokens came from steps without a draft, the acceptance length counts these steps."""
    counters = Counters(100, 300, 100, output_tokens=300)
    assert undrafted_share(counters) == pytest.approx(1 / 3)
    assert acceptance(counters, None, "eagle3", "x").length == tokens_per_step(counters) == pytest.approx(1.5)


@pytest.mark.parametrize("counts", [(0, 0, 0), (10, 5, 1), (10, 30, 31), (10, 30, -1)])
def test_impossible_counters_are_refused(counts: tuple[int, int, int]) -> None:
    """More accepted than drafted, or fewer draft tokens than drafts, is refused."""
    with pytest.raises(ValueError, match="contradict"):
        Counters(*counts)


def test_more_cannot_run_than_is_offered() -> None:
    """Running is at most what was offered; below 0.9 of it the batch is mixed."""
    with pytest.raises(ValueError, match="cannot run"):
        Running(4, 5, "x")
    assert Running(100, 89, "x").is_mixed
    assert not Running(100, 90, "x").is_mixed
