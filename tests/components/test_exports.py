"""The package exports its components, and imports none of them by itself."""

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


@pytest.mark.parametrize("name", components.__all__)
def test_every_export_exists(name):
    assert getattr(components, name).__name__.rpartition(".")[2] in (name, "build")
    assert getattr(components, name) is getattr(components, name)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'Trianer'"):
        components.Trianer  # noqa: B018
