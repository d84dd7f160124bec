from pathlib import Path

import pytest

from dsd_tune.cli.aim import stated_aim
from dsd_tune.errors import UsageError
from dsd_tune.records.objective import Objective


def _read(path: Path, text: str) -> tuple[tuple[int, float], ...]:
    path.write_text(text, encoding="utf-8")
    return stated_aim(next(iter(Objective)), None, path, None, None).histogram


@pytest.mark.parametrize("size", ["8", "8.0", " 8 "])
def test_whole_numbers_are_batch_sizes(tmp_path: Path, size: str) -> None:
    """A batch size counts however its whole number is written, and only the header is passed over."""
    assert _read(tmp_path / "load.csv", f"# seen\nbatch_size,weight\n1,2\n{size},3\n") == ((1, 2.0), (8, 3.0))


@pytest.mark.parametrize(
    "text",
    [
        "1,5\n2,5\n",
        "\ufeff1,5\n2,5\n",
        "1.0, 5e0\n",
        "b,w\n8.5,1\n",
        "b,w\nnan,1\n",
        "b,w\ninf,1\n",
        "b,w\n1\n",
        f"b,w\n1,{'9' * 200_000}\n",
    ],
    ids=["no header", "no header after a mark", "one row", "half", "nan", "infinite", "one column", "long field"],
)
def test_no_row_is_lost_or_bent(tmp_path: Path, text: str) -> None:
    """A histogram that lacks its header, or holds what is no batch size or weight, is refused."""
    with pytest.raises(UsageError, match="is no histogram"):
        _read(tmp_path / "load.csv", text)
