"""What is typed often starts at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "tfx", "apache_beam", "keras", "ml_metadata", "numpy")

CODE = """
import sys
from stagecraft.pipeline.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["config", "--help"], ["doctor", "--help"],
     ["history", "--help"], ["compare", "--help"], ["config"], ["config", "--describe"],
     ["run", "--set", "no.such=1"]],
)  # fmt: skip
def test_nothing_heavy_is_imported(arguments, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert ran.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["", "run", "config", "doctor"])
def test_help_comes_within_half_a_second_of_processor_time(command):
    code = f"from stagecraft.pipeline.cli.main import main; main({[*command.split(), '--help']})"
    best = min(_processor_seconds(code) for _ in range(2))
    assert best < 0.5


def _processor_seconds(code: str) -> float:
    tell = "lambda: print(sum(os.times()[:2]), file=sys.stderr)"
    code = f"import atexit, os, sys; atexit.register({tell}); {code}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(ran.stderr.splitlines()[-1])
