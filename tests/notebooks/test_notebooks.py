"""The notebooks run from top to bottom, and are stored with what they showed."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
PATIENCE_S = 300
"""A minute on an idle machine; a busy one is no bug."""

every_notebook = pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)


def _code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@every_notebook
@pytest.mark.slow
def test_it_runs(path: Path) -> None:
    """Every cell runs in a fresh kernel, and as many pictures come out as are stored."""
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    NotebookClient(fresh, timeout=PATIENCE_S, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert _pictures(fresh) == _pictures(stored) > 0


@every_notebook
def test_it_holds_its_outputs(path: Path) -> None:
    """Somebody who only reads it sees what came out, without errors and without the paths of a machine."""
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.execution_count for cell in _code(notebook))
    assert not any(output.output_type == "error" for cell in _code(notebook) for output in cell.outputs)
    assert "/home/" not in path.read_text()
    assert "site-packages" not in path.read_text()
    assert "/tmp/" not in path.read_text()  # noqa: S108 (looked for, not written to)


@every_notebook
def test_it_uses_public_names_alone(path: Path) -> None:
    """What it imports from dsd_tune has no underscore in front."""
    source = "\n".join(cell.source for cell in _code(nbformat.read(path, as_version=4)))
    imported = [line for line in source.splitlines() if line.startswith("from dsd_tune")]
    assert imported
    assert not any(word.startswith("_") for line in imported for word in line.replace(",", " ").split())
    assert "._" not in source


def _pictures(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for cell in _code(notebook) for output in cell.outputs)
