"""`dsd-tune import` on real files, and what it said."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from dsd_tune.cli.import_ import import_
from dsd_tune.errors import DsdTuneError

DATA = Path(__file__).parent / "data" / "imports"
GRIDS = DATA / "grids"


class Said:
    """What a command printed, and how it ended."""

    def __init__(self, *words: object) -> None:
        app = typer.Typer()
        app.command()(import_)
        result = CliRunner().invoke(app, [str(word) for word in words])
        self.out, self.notes, self.code = result.stdout, result.stderr, result.exit_code
        self.error = ""
        if isinstance(result.exception, DsdTuneError):
            self.code, self.error = result.exception.exit_code, str(result.exception)
        elif result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception


def written(path: Path, text: str) -> Path:
    """A file with that text."""
    path.write_text(text)
    return path


def bench_result(path: Path, **changed: object) -> Path:
    """The K=3 result of `vllm bench serve`, with `changed` keys; None removes a key."""
    result = json.loads((DATA / "bench_serve_k3.json").read_text()) | changed
    return written(path, json.dumps({key: value for key, value in result.items() if value is not None}))
