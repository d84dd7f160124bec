import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORK_ORDER = ["plan", "sweep", "fit", "show", "report", "emit-config", "check", "replay", "validate", "probe", "watch"]
"""Commands as a user meets them; others may stand between."""


def _commands(help_text: str) -> list[str]:
    lines = help_text[help_text.index("Commands:") :].splitlines()[1:]
    return [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]


def test_help_lists_commands_in_the_order_of_work(cli: Any) -> None:
    """The table of contents is a way through the work, not an alphabet."""
    said = cli("--help")
    assert said.code == 0
    assert [name for name in _commands(said.out) if name in WORK_ORDER] == WORK_ORDER


def test_every_command_explains_itself(cli: Any) -> None:
    """Each command has a help text of its own, with a first sentence that the overview shows."""
    overview = cli("--help").out
    for name in _commands(overview):
        said = cli(name, "--help")
        assert said.code == 0
        assert said.out.startswith(f"Usage: dsd-tune {name}")
        (line,) = [line for line in overview.splitlines() if line.split()[:1] == [name]]
        assert len(line.split()) > 3


def test_bare_command_shows_help(cli: Any) -> None:
    """Without a command the overview is shown, and it is a usage error to a script."""
    said = cli()
    assert "Commands:" in said.out + said.err
    assert said.code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["swep"],
        ["sweep"],
        ["sweep", "-o", "run", "--max-k", "two"],
        ["sweep", "-o", "run", "--starts", "0"],
        ["sweep", "-o", "run", "--rounds", "-1"],
        ["sweep", "-o", "run", "--temperature", "-0.5"],
        ["sweep", "-o", "run", "--max-num-seqs", "1.5"],
        ["sweep", "-o", "run", "--speculate"],
        ["fit"],
        ["emit-config"],
        ["show"],
        ["report", "profile.json"],
        ["report", "profile.json", "-o", "report.pdf", "--format", "pdf"],
    ],
    ids=" ".join,
)
def test_mistyped_commands_are_usage_errors(cli: Any, words: list[str]) -> None:
    """What the parser refuses ends with exit code 2, says what is wrong on stderr, and prints nothing else."""
    said = cli(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].startswith("Error: ")


def test_a_process_ends_as_it_says(tmp_path: Path) -> None:
    """In a process of its own an error is one sentence on stderr and the exit code, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", "from dsd_tune.cli.app import main; main()", "fit", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("dsd-tune em", ["emit-config"]), ("dsd-tune report runs/demo --fo", ["--format", "--force"])],
    ids=["a command", "a flag"],
)
def test_a_shell_completes(typed: str, offered: list[str]) -> None:
    """What --install-completion puts into a shell asks the program like this, and gets the words that fit."""
    asked = {"_DSD_TUNE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from dsd_tune.cli.app import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == offered
