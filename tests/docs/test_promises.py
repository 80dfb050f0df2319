"""docs/reference/promises.md: each row names code and a test that exist."""

import ast
import re

import pytest
from snippets import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/reference/promises.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| what")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_row_names_code_and_a_test(row):
    assert len(row) == 4 and all(row)
    code, tests = (re.findall("`([^`]+)`", row[place]) for place in (1, 3))
    assert code and tests
    for path in code:
        assert (ROOT / path).is_file() and not path.startswith("tests/")
    for path in tests:
        assert path.startswith("tests/")
        names = [each.name for each in ast.walk(ast.parse((ROOT / path).read_text()))
                 if isinstance(each, ast.FunctionDef)]  # fmt: skip
        assert any(name.startswith("test_") for name in names)
