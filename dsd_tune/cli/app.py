"""The table of contents of the command line, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import io
import signal
import sys
from contextlib import redirect_stdout
from types import FrameType
from typing import NoReturn, TextIO, cast

import typer

from dsd_tune.cli.check import check
from dsd_tune.cli.diff import diff
from dsd_tune.cli.doctor import doctor
from dsd_tune.cli.emit_config import emit_config
from dsd_tune.cli.fit import fit
from dsd_tune.cli.import_ import import_
from dsd_tune.cli.plan import plan
from dsd_tune.cli.probe import probe
from dsd_tune.cli.replay import replay
from dsd_tune.cli.report import report
from dsd_tune.cli.share import share
from dsd_tune.cli.show import show
from dsd_tune.cli.stdout import Stdout
from dsd_tune.cli.sweep import sweep
from dsd_tune.cli.testbed import testbed
from dsd_tune.cli.tune import tune
from dsd_tune.cli.validate import validate
from dsd_tune.cli.watch import watch
from dsd_tune.errors import DsdTuneError

app = typer.Typer(
    name="dsd-tune",
    help="Measure and choose the number of speculative tokens per batch size for vLLM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# A pasted `vllm serve` line keeps its flags: they follow it.
PASTED = {"allow_interspersed_args": False}
# In the order of a user's work; typer lists groups after commands.
app.add_typer(testbed)
app.command(context_settings=PASTED)(doctor)
app.command()(plan)
app.command()(tune)
app.command()(sweep)
app.command("import")(import_)
app.command()(fit)
app.command()(show)
app.command()(report)
app.command("emit-config")(emit_config)
app.command(context_settings=PASTED)(check)
app.command()(replay)
app.command()(validate)
app.command()(probe)
app.command()(watch)
app.command()(diff)
app.command()(share)


def main() -> None:
    """Run the command line; a SIGTERM is as gentle as Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a sign shows a question mark.
            stream.reconfigure(errors="replace")
    try:
        # A process that was started with a closed stdout has none.
        with redirect_stdout(cast(TextIO, sys.stdout and Stdout(sys.stdout))):
            app(prog_name="dsd-tune")
    except DsdTuneError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
