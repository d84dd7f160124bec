from pathlib import Path

import pytest

from dsd_tune.errors import EnvironmentUnfit
from dsd_tune.testbed import prepare as preparing


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(28, "No space left on device")])
def test_a_cache_that_cannot_be_written_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Whatever keeps the testbed from being stored is named, with the variable that moves it."""

    def fails(_folder: object) -> None:
        raise error

    monkeypatch.setenv("DSD_TUNE_CACHE", str(tmp_path))
    monkeypatch.setattr(preparing.CachedFolder, "ensure", fails)
    with pytest.raises(EnvironmentUnfit, match=f"{error.strerror}.*DSD_TUNE_CACHE"):
        preparing.prepare(str)


def test_a_cache_that_is_a_file_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache directory that cannot be made is no traceback either."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DSD_TUNE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentUnfit, match="DSD_TUNE_CACHE"):
        preparing.prepare(str)


def test_a_user_without_a_home_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody knows the home directory, the variable that replaces it is named."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("DSD_TUNE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(EnvironmentUnfit, match="DSD_TUNE_CACHE"):
        preparing.cache_directory()


def test_a_full_disk_under_safetensors_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors has an error of its own for a disk that is full; it is named like any other."""
    errors = pytest.importorskip("safetensors")

    def fails(_source: Path, _into: Path) -> None:
        raise errors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(preparing, "_convert", fails)
    with pytest.raises(EnvironmentUnfit, match=r"No space left.*DSD_TUNE_CACHE"):
        preparing._converted(tmp_path, tmp_path)
