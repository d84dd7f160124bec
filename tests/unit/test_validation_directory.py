"""A validation on disk: begun, gone on with, and kept apart from others."""

from pathlib import Path

import pytest
from builders import a_load, a_validation_request

from dsd_tune.errors import UsageError
from dsd_tune.records.validation import ServedArm
from dsd_tune.storage import formats
from dsd_tune.storage.validation_directory import ValidationDirectory


def _with_starts(path: Path, starts: int, *, half: bool = False) -> None:
    """A validation of two arms with so many starts of each, and one load of another."""
    directory = ValidationDirectory.create(path, a_validation_request(starts=starts))
    for start in range(starts):
        for arm in (ServedArm.NO_SPEC, ServedArm.TABLE):
            for concurrency in (1, 4):
                directory.append(a_load(arm=arm, start=start, concurrency=concurrency))
    if half:
        directory.append(a_load(start=starts))


@pytest.mark.parametrize(("asked", "goes_to"), [(5, 5), (3, 3), (2, 3), (1, 3)])
def test_more_starts_go_on_and_fewer_use_all(tmp_path: Path, asked: int, goes_to: int) -> None:
    """What was taken is not taken back; a start that was only begun need not be ended."""
    _with_starts(tmp_path, 3, half=True)
    directory = ValidationDirectory.create(tmp_path, a_validation_request(starts=asked))
    assert directory.request.starts == goes_to
    assert formats.read(formats.VALIDATION, tmp_path / "validation.json") == directory.request
    assert len(directory.loads()) == 13


def test_starts_make_no_other_validation(tmp_path: Path) -> None:
    """Beside the profile the directory of fewer starts is found again; another load has its own."""
    first = tmp_path / "validation"
    _with_starts(first, 2)
    assert ValidationDirectory.beside(first, a_validation_request(starts=4)).path == first
    other = ValidationDirectory.beside(first, a_validation_request(starts=4, output_tokens=64))
    assert other.path == tmp_path / "validation-2"


def test_what_asks_something_else_is_refused(tmp_path: Path) -> None:
    """The fields that differ are named, and starts are none of them."""
    _with_starts(tmp_path, 1)
    with pytest.raises(UsageError, match=r"asks something else \(output_tokens\)"):
        ValidationDirectory.create(tmp_path, a_validation_request(starts=4, output_tokens=64))


@pytest.mark.parametrize("step", ["write", "write_lines"])
def test_one_that_died_at_birth_can_be_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever of its files was to be written then: no directory is left that cannot be read."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(formats, step, die)
        with pytest.raises(KeyboardInterrupt):
            ValidationDirectory.create(tmp_path, a_validation_request())
    assert ValidationDirectory.create(tmp_path, a_validation_request()).loads() == []


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """Another one is refused before it changes what is asked for."""
    _with_starts(tmp_path, 1)
    directory = ValidationDirectory.create(tmp_path, a_validation_request(starts=1))
    with directory.lock(), pytest.raises(UsageError, match="in use by process"):
        ValidationDirectory.create(tmp_path, a_validation_request(starts=4))
    assert formats.read(formats.VALIDATION, tmp_path / "validation.json").starts == 1
