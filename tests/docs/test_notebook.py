"""The notebook runs from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

import nbformat
import pytest
from snippets import ROOT

NOTEBOOK = ROOT / "notebooks" / "components.ipynb"


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_outputs(notebook: nbformat.NotebookNode) -> None:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) > 5
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.slow
def test_it_runs(notebook: nbformat.NotebookNode, tmp_path, monkeypatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import tempfile; tempfile.tempdir = None"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.get("text", "") for output in notebook.cells[-1].outputs if "text" in output
    )
    assert "the model says" in printed
    (left,) = tmp_path.glob("stagecraft-notebook-*")
    assert list(left.glob("serving/*/saved_model.pb"))
