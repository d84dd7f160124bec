from pathlib import Path

import pytest

from dsd_tune.errors import DsdTuneError, EnvironmentUnfit, UsageError
from dsd_tune.studies.address import Address

HUSH = "hunter2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql+psycopg://ann:{HUSH}@db.example:5433/runs", "postgresql+psycopg://db.example:5433/runs"),
        (f"postgresql+psycopg://db.example/runs?password={HUSH}", "postgresql+psycopg://db.example/runs"),
        ("sqlite:///runs/study.db", "sqlite:///runs/study.db"),
        ("runs/journal.log", "runs/journal.log"),
    ],
)
def test_an_address_is_shown_without_its_secrets(text: str, shown: str) -> None:
    """A person reads where studies are, and neither user, password nor options."""
    assert str(Address(text)) == shown
    assert HUSH not in repr(Address(text))


@pytest.mark.parametrize(
    ("text", "kind", "complaint"),
    [
        (f"postgresql+psycopg://ann:{HUSH}@127.0.0.1:1/runs", DsdTuneError, "See that the server runs"),
        (f"postgresql+psycopg://ann:{HUSH}@x@127.0.0.1:1/runs", UsageError, "In a password, write @ as %40"),
        (f"postgresql://ann:{HUSH}@db.example:port/runs", UsageError, "is no address of a database"),
        (f"redis://ann:{HUSH}@db.example", UsageError, "redis://... is no address of a database"),
        (f"oracle://ann:{HUSH}@db.example/runs", EnvironmentUnfit, "needs the Python package"),
        ("sqlite:////nowhere/study.db", DsdTuneError, "Name a file that you may write to"),
        ("/nowhere/journal.log", DsdTuneError, "No such file or directory"),
    ],
    ids=["no server", "unquoted @", "bad port", "unknown", "no driver", "no folder", "no folder for a journal"],
)
def test_a_storage_that_cannot_be_used_is_explained(text: str, kind: type[DsdTuneError], complaint: str) -> None:
    """Whatever is wrong with a storage is one sentence of ours that says what to do and tells no secret."""
    if "psycopg" in text:
        pytest.importorskip("psycopg")
    with pytest.raises(kind) as refusal:
        Address(text).open()
    assert complaint in str(refusal.value)
    assert HUSH not in str(refusal.value)


@pytest.mark.parametrize(("prefix", "complaint"), [("", "is no journal of Optuna"), ("sqlite:///", "not a database")])
def test_a_file_of_another_kind_is_no_storage(tmp_path: Path, prefix: str, complaint: str) -> None:
    """A file that holds something else is refused by name and left as it is."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ann,\nit rains.\n" * 100)
    before = path.read_bytes()
    with pytest.raises(DsdTuneError, match=complaint) as refusal:
        Address(f"{prefix}{path}").open()
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["plain", "a b", "50%", "what?", "#1", "{x}"])
def test_a_run_directory_of_any_name_holds_its_study(tmp_path: Path, name: str) -> None:
    """The database of a run lies in its directory, whatever that is called."""
    (tmp_path / name).mkdir()
    Address.of_sqlite(tmp_path / name / "study.db").open()
    assert [path.name for path in (tmp_path / name).iterdir()] == ["study.db"]
