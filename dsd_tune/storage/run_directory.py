"""One sweep on disk: a manifest that says what it is, and samples that only ever grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dsd_tune.errors import DsdTuneError, UsageError
from dsd_tune.records.measurement import Block, Failure
from dsd_tune.records.run import Manifest, SweepRequest
from dsd_tune.storage import files, formats
from dsd_tune.storage.identity import require_same_request, require_same_run

_STEP_DECIMALS = 7
"""A tenth of a microsecond: far below what a clock around a step can tell, and half the file's size."""

_LOGS = "logs"
_STUDY = "study.db"


def log_directory(run: Path) -> Path:
    """Where the engines of a run leave their logs; it may exist before the run does."""
    return run / _LOGS


def study_file(run: Path) -> Path:
    """Where a run keeps its study, unless it shares one; it may exist before the run does."""
    return run / _STUDY


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run directory with its manifest; make one by `create` or `open`."""

    path: Path
    manifest: Manifest

    @staticmethod
    def require_usable(path: Path, request: SweepRequest) -> None:
        """Make sure that a sweep of `request` may go to `path`, before anything expensive is done for it.

        Raises:
            UsageError: the directory holds something else, another request, or another process is at work in it.
            DsdTuneError: it cannot be made or written to.
        """
        _make(path)
        with files.locked(path):
            if _manifest(path).exists():
                require_same_request(RunDirectory.open(path).manifest, request, str(path))

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a run was begun in `path`."""
        return _manifest(path).is_file()

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunDirectory:
        """Begin a run, or resume the one that is there if it is the same; the first manifest stays.

        Raises:
            UsageError: the directory holds something else, another request, or another process is at work in it.
            ProfileMismatch: the run there was measured in another environment; names the keys.
        """
        _make(path)
        with files.locked(path):
            if _manifest(path).exists():
                run = cls.open(path)
                require_same_run(run.manifest, manifest, str(path))
            else:
                formats.write(formats.MANIFEST, _manifest(path), manifest)
                run = cls(path, manifest)
            run._prepare_samples()
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that exists, of this or an older version.

        Raises:
            UsageError: there is none, or its manifest cannot be read.
        """
        if not cls.is_one(path):
            raise UsageError(f"{path} is no run directory.", "Name a directory that a sweep or an import wrote.")
        return cls(path, formats.read(formats.MANIFEST, _manifest(path)))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing; reading stays free.

        Raises:
            UsageError: another process is at work here; names its process id.
        """
        with files.locked(self.path):
            yield

    def samples(self) -> list[Block | Failure]:
        """What was measured so far, in that order. A line that a crash left unfinished is no sample.

        Raises:
            UsageError: the file is missing or damaged.
        """
        return formats.read_samples(self._samples_path, self.manifest.request)[1]

    def timings(self) -> list[Block | Failure]:
        """The same without the blocks' token counts, which are most of a large file.

        Raises:
            UsageError: the file is missing or damaged.
        """
        return formats.read_samples(self._samples_path, self.manifest.request, with_prompts=False)[1]

    def append(self, sample: Block | Failure) -> Block | Failure:
        """Add a sample and wait until it is on the disk; gives back what is there: step times to 0.1 microseconds.

        Raises:
            DsdTuneError: the disk refused; what was measured before is kept.
        """
        if isinstance(sample, Block):
            sample = replace(sample, step_s=tuple(round(s, _STEP_DECIMALS) for s in sample.step_s))
        formats.append_sample(self._samples_path, sample)
        return sample

    def rewrite(self, samples: Iterable[Block | Failure]) -> None:
        """Replace all samples: those of this worker by those of all workers, say.

        Raises:
            DsdTuneError: the disk refused; the old file is untouched.
        """
        formats.write_samples(self._samples_path, samples)

    @property
    def _samples_path(self) -> Path:
        return self.path / "samples.jsonl"

    def _prepare_samples(self) -> None:
        """An empty file for a new run; an older version's is written anew, since one file has one version."""
        if not self._samples_path.exists():
            formats.write_samples(self._samples_path, [])
            return
        version, samples = formats.read_samples(self._samples_path, self.manifest.request)
        if version < formats.SAMPLES_VERSION:
            formats.write_samples(self._samples_path, samples)


def _make(path: Path) -> None:
    """An existing directory will do if it is a run, or holds nothing that could be lost among our files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise DsdTuneError(f"{path} cannot be used: {error.strerror}.", "Name a directory you may write to.") from error
    # Beside its study a database leaves what it needs after a crash.
    if any(not name.startswith((".", _STUDY)) and name != _LOGS for name in names) and not _manifest(path).exists():
        raise UsageError(f"{path} is not empty and holds no run.", "Name a new or empty directory.")


def _manifest(path: Path) -> Path:
    return path / "manifest.json"
