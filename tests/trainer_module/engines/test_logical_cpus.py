"""Runs the tests in logical_cpus/, all in one process that has six logical CPUs.

One of them by hand: ``STAGECRAFT_LOGICAL_CPUS=1 pytest tests/trainer_module/engines/logical_cpus``.
"""

import functools
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

FOLDER = pathlib.Path(__file__).parent / "logical_cpus"
FILES = sorted(path.stem for path in FOLDER.glob("test_*.py"))
RARELY = ("test_freezing", "test_lookahead", "test_nested", "test_zero")
"""A third of the time; ``make test-all`` runs them."""
OFTEN = tuple(file for file in FILES if file not in RARELY)
Outcomes = dict[str, list[str]]
"""File -> what its tests came to: empty where they passed."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcomes]:
    """Runs the tests of a marker, as in ``pytest -m``, in some files; gives their outcomes."""

    @functools.cache
    def run(marker: str, files: tuple[str, ...]) -> Outcomes:
        report = tmp_path_factory.mktemp("logical_cpus") / "report.xml"
        paths = [str(FOLDER / f"{file}.py") for file in files]
        words = [sys.executable, "-m", "pytest", *paths, "-m", marker, f"--junitxml={report}"]
        done = subprocess.run(
            words, env=os.environ | {"STAGECRAFT_LOGICAL_CPUS": "1"}, capture_output=True, text=True
        )
        if done.returncode not in (0, 1):  # each file fails; an error here would run all again
            end = f"pytest: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
            return {file: [end] for file in files}
        found: Outcomes = {}
        for case in ET.parse(report).iter("testcase"):
            file = case.attrib["classname"].rpartition(".")[2]
            bad = [child for child in case if child.tag in ("failure", "error")]
            found.setdefault(file, []).extend(
                f"{case.attrib['name']}\n{child.text}" for child in bad
            )
        return found

    return run


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the first one runs all of them
@pytest.mark.parametrize("file", OFTEN)
def test_passes(outcomes, file):
    failures = outcomes("not slow", OFTEN).get(file, [])
    assert not failures, "\n\n".join(failures)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("file", RARELY)
def test_a_rare_one_passes(outcomes, file):
    failures = outcomes("not slow", RARELY).get(file, [])
    assert not failures, "\n\n".join(failures)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_slow_ones_pass(outcomes):
    failures = [
        failure for of_file in outcomes("slow", tuple(FILES)).values() for failure in of_file
    ]
    assert not failures, "\n\n".join(failures)
