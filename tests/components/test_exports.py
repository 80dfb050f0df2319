"""The package exports its components, and imports none of them by itself."""

import ast
import pathlib
import subprocess
import sys

import pytest

from stagecraft import components


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, stagecraft.components as c; assert 'Trainer' in dir(c);"
        "print({'tensorflow', 'tfx', 'apache_beam', 'keras'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_editors_see_what_is_exported():
    tree = ast.parse(pathlib.Path(components.__file__).read_text())
    imported = {
        (alias.name, (node.module or "").removeprefix("stagecraft.components."))
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("stagecraft.components.")
        for alias in node.names
    }
    assert imported == set(components._HOMES.items())
    assert components.__all__ == sorted(components._HOMES)


@pytest.mark.parametrize("name", components.__all__)
def test_every_export_exists(name):
    assert getattr(components, name).__name__ == name
    assert getattr(components, name) is getattr(components, name)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'Trianer'"):
        components.Trianer  # noqa: B018
