"""Help and quick commands start at once."""

import sys

import click
import pytest
from processes import ran

from stagecraft.pipeline.cli.commands.tfx import tfx
from stagecraft.pipeline.cli.main import main

HEAVY = ("tensorflow", "tfx", "apache_beam", "keras", "kfp", "kubernetes", "ml_metadata", "numpy")

CODE = """
import sys
from stagecraft.pipeline.cli.main import main
for arguments in sys.argv[1:]:
    try:
        main(arguments.split())
    except SystemExit:
        pass
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


def helps(group=main, path=""):
    """``--help`` of all commands but ``tfx``, whose help is TFX's."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from helps(command, f"{path}{name} ")
        if command is not tfx:
            yield f"{path}{name} --help"


@pytest.mark.parametrize(
    "words",
    [("--help", *helps()), ("config",), ("config --describe",), ("run --set no.such=1",)],
    ids=["help", "config", "describe", "error"],
)
def test_nothing_heavy_is_imported(words, tmp_path):
    done = ran(sys.executable, "-c", CODE.format(heavy=HEAVY), *words, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["", "run", "config", "doctor"])
def test_help_imports_few_modules(command):
    tell = "lambda: print(len(sys.modules), file=sys.stderr)"
    code = "\n".join(
        [
            "import atexit, sys",
            "from stagecraft.pipeline.cli.main import main",
            f"atexit.register({tell})",
            f"main({[*command.split(), '--help']})",
        ]
    )
    assert int(ran(sys.executable, "-c", code).stderr.splitlines()[-1]) <= 400
