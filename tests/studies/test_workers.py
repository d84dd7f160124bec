from pathlib import Path

import pytest
from shared_study import one_of_two_is_killed


@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "{}/journal.log"])
def test_a_killed_worker_costs_no_turn_and_doubles_none(storage: str, tmp_path: Path) -> None:
    """Two workers on a file, one killed: all turns are in the result once, and the dead one's blocks among them."""
    one_of_two_is_killed(storage.format(tmp_path), tmp_path, seed=0)
