"""Foreign files as they arrive: edited by hand, cut off, or with a value that nobody expects."""

import re
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dsd_tune.errors import DsdTuneError
from dsd_tune.importers.declared import Declared
from dsd_tune.importers.join import join
from dsd_tune.importers.recognise import read_measurements, read_table

DATA = Path(__file__).parents[1] / "data" / "imports"
FILES = sorted(path for path in DATA.rglob("*") if path.suffix in (".csv", ".json", ".prom"))
SURPRISES = ("0", "-1", "1e400", "nan", "null", '"x"', "[]", "{}", "true", "9" * 21, "1.5", "", "-", "inf", '"', "\0")


def damaged(text: str, random: Random) -> str:
    """`text` with some words, numbers or brackets replaced."""
    for _ in range(random.randint(1, 4)):
        words = list(re.finditer(r'-?\d+\.?\d*|"[^"]*"|\w+|[,{}\[\]\n]', text))
        old = random.choice(words)
        text = text[: old.start()] + random.choice([*SURPRISES, random.choice(words).group()]) + text[old.end() :]
    return text


@pytest.mark.parametrize("original", FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_damage_is_refused_or_read(original: Path, tmp_path: Path) -> None:
    """A damaged file is read or refused with a sentence, and never ends in a traceback."""
    random = Random(original.name)
    for number in range(10):
        path = tmp_path / f"{number}{original.suffix}"
        path.write_text(damaged(original.read_text(), random))
        with suppress(DsdTuneError):
            read_table(path, 64)
            found = join(read_measurements([path], Declared()), Declared(), 1.0, "0.1.0")
            assert found.rows or found.acceptance
