"""Every command in the documents: parsed as it would be when it is typed, and run where that needs no server."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from docs.blocks import ROOT, Command, commands, documents
from typer.core import TyperGroup

from dsd_tune.cli.app import app
from dsd_tune.engines.cost_law import CostLaw
from dsd_tune.engines.simulated import SimulatedEngine

DATA = ROOT / "tests" / "data" / "imports"
ALL = list(dict.fromkeys(command for document in documents() for command in commands(document)))
OURS = [command for command in ALL if command.program == "dsd-tune"]

RUN_HERE = {
    "check": (0,),
    "diff": (0, 4, 5),
    "doctor": (0, 1),
    "emit-config": (0, 4, 5),
    "fit": (0, 4, 5),
    "import": (0,),
    "plan": (0,),
    "replay": (0,),
    "report": (0,),
    "share": (0,),
    "show": (0,),
    "sweep": (0,),
}
"""Commands that need no server, with the exit codes that are answers."""

ON_SERVERS = {"testbed", "tune", "validate", "probe", "watch"}
"""These are run by the tests in tests/engine, on real ones."""

REFUSED = typer.BadParameter.__bases__[0]
"""What typer raises on any mistake in a line; it has no public name for it."""

OTHERS = {"make", "pip", "python", "vllm", "optuna-dashboard"}


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def _ours(document: Path) -> list[Command]:
    return [command for command in commands(document) if command.program == "dsd-tune"]


def _parse(words: tuple[str, ...]) -> None:
    """As the command line does it, down to the callback, which is not called.

    Raises:
        REFUSED: an unknown command or flag, a value of the wrong type, or one that is missing.
    """
    command, arguments = typer.main.get_command(app), list(words[1:])
    context = command.make_context("dsd-tune", arguments)
    while isinstance(command, TyperGroup):
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, arguments, parent=context)


def _runs_here(command: Command) -> bool:
    needs_more = {"--testbed", "--storage", "--url"} & set(command.words)
    return command.words[1] in RUN_HERE and not needs_more


def test_the_documents_are_found() -> None:
    """The README shows each command of the path from measuring to pasting, and other documents have commands too."""
    assert {"sweep", "import", "fit", "report", "emit-config", "check", "replay", "validate"} <= {
        command.words[1] for command in OURS if command.document == "README.md"
    }
    assert len({command.document for command in OURS}) > 5


@pytest.mark.parametrize("command", OURS, ids=str)
def test_it_is_understood(command: Command) -> None:
    """Command, flags and values are those that the command line takes."""
    _parse(command.words)
    assert command.words[1] in RUN_HERE.keys() | ON_SERVERS


@pytest.mark.parametrize(
    "line", ["swep -o run", "fit", "fit runs/demo --no-such-flag", "sweep -o run --starts none", "testbed prepar"]
)
def test_a_wrong_command_is_seen(line: str) -> None:
    """The check above can fail: for each part of a line that may be wrong."""
    with pytest.raises(REFUSED):
        _parse(("dsd-tune", *line.split()))


@pytest.mark.parametrize("command", [c for c in ALL if c.program != "dsd-tune"], ids=str)
def test_another_program_is_one_that_we_know(command: Command) -> None:
    """Targets are in the Makefile, modules exist, and what is handed to vLLM as JSON is JSON."""
    assert command.program in OTHERS
    if command.program == "make":
        assert re.search(rf"^{command.words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if command.program == "python":
        assert find_spec(command.words[2]) if command.words[1] == "-m" else (ROOT / command.words[1]).is_file()
    for flag, value in zip(command.words, command.words[1:], strict=False):
        if flag == "--speculative-config":
            json.loads(value)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the documents name, and a simulated engine in place of vLLM."""
    _lay_runs(tmp_path)
    _lay_files(tmp_path)

    def engine(**asked: Any) -> SimulatedEngine:
        return SimulatedEngine(
            CostLaw(critical_tokens=64), tuple(0.8**k for k in asked["ks"][1:]), max_num_seqs=asked["max_num_seqs"]
        )

    monkeypatch.setattr("dsd_tune.engines.vllm_engine.VllmEngine", engine)
    monkeypatch.setattr("dsd_tune.model.cost._REFITS", 5)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _lay_runs(stage: Path) -> None:
    shutil.copytree(ROOT / "profiles", stage / "profiles", ignore=shutil.ignore_patterns("NAME"))
    for run in ("runs/demo", "runs/llama", "before", "after"):
        shutil.copytree(ROOT / "profiles" / "smollm2-135m-eagle3-cpu", stage / run)
    shutil.copytree(DATA / "vllm_bench_sweep", stage / "sweep_folder")


def _lay_files(stage: Path) -> None:
    shutil.copy(DATA / "grids" / "rl_qwen3_32b_openmath_gb200.csv", stage / "grid.csv")
    for name, drafts in (("before", 1000), ("after", 3000)):
        (stage / f"{name}.prom").write_text(_scrape(drafts))
    prompts = [f"Why is {n} prime?" for n in range(300)]
    for name in ("prompts.jsonl", "held-out.jsonl"):
        (stage / name).write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    lengths = "".join(f"200,{50 + n % 400}\n" for n in range(100))
    (stage / "lengths.csv").write_text(f"prompt_tokens,output_tokens\n{lengths}")
    arrivals = "".join(f"{n / 4},200,{50 + n % 40}\n" for n in range(100))
    (stage / "requests.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{arrivals}")
    schedule = "  draft_len_schedule: {4: 4, 8: 2}\n"
    (stage / "extra-llm-api-config.yml").write_text(f"speculative_config:\n  decoding_type: Eagle\n{schedule}")


def _name_all(profiles: Path) -> None:
    """What whoever adds a profile is told to do: name it in the README there."""
    with (profiles / "README.md").open("a") as readme:
        readme.writelines(f"| `{run.name}` |\n" for run in profiles.iterdir() if run.is_dir())


def _scrape(drafts: int) -> str:
    """Counters of a server at K=3."""
    counts = {"drafts": drafts, "draft_tokens": 3 * drafts, "accepted_tokens": 2 * drafts}
    return "".join(f'vllm:spec_decode_num_{name}_total{{model_name="m"}} {n}\n' for name, n in counts.items())


@pytest.mark.slow
@pytest.mark.parametrize("document", [d for d in documents() if any(map(_runs_here, _ours(d)))], ids=_name)
def test_it_runs(document: Path, stage: Path, cli: Any) -> None:
    """All of a document in its order, one after the other, so that each finds what those before it wrote."""
    for command in filter(_runs_here, _ours(document)):
        if command.words[1] == "sweep":
            shutil.rmtree(stage / command.words[command.words.index("-o") + 1])
        if command.words[1:] == ("check", "profiles/"):
            _name_all(stage / "profiles")
        said = cli(*command.words[1:])
        assert said.code in RUN_HERE[command.words[1]], f"{command}\n{said.err}"
        assert "Error:" not in said.err


def test_what_the_readme_shows_is_what_is_printed(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables in it are those of the profile that it names, line for line."""
    monkeypatch.setenv("COLUMNS", "80")
    printed = {line.rstrip() for line in cli("show", ROOT / "profiles" / "smollm2-135m-eagle3-cpu").out.splitlines()}
    shown = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(shown) == 2
    assert {line for block in shown for line in block.splitlines()} <= printed


@pytest.mark.parametrize("document", documents(), ids=_name)
def test_every_link_leads_somewhere(document: Path) -> None:
    """Relative links name files of the repository, and headings that exist in them."""
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        path, _, heading = target.partition("#")
        if "://" not in target:
            linked = document.parent / path if path else document
            assert linked.exists(), target
            assert not heading or heading in _headings(linked), target


def _headings(document: Path) -> set[str]:
    """As their links are written."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_a_word_has_one_meaning() -> None:
    """No term stands twice in the glossary."""
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(terms) > 30
    assert len(terms) == len(set(terms))
