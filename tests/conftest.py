"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")


@pytest.fixture(scope="session")
def cifar10_small(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder with 5,000 + 1,000 real pictures in both official layouts.

    From the folder that STAGECRAFT_CIFAR10 names, or made by ../shared; skipped where neither is.
    """
    given = os.environ.get("STAGECRAFT_CIFAR10")
    if given:
        folder = pathlib.Path(given)
        missing = [name for name in ARCHIVES if not (folder / name).exists()]
        if missing:
            pytest.fail(f"STAGECRAFT_CIFAR10={given} lacks {', '.join(missing)}")
        return folder
    maker = ROOT.parent / "shared" / "cifar10" / "make_archives.py"
    if not maker.exists():
        pytest.skip("no real CIFAR-10: set STAGECRAFT_CIFAR10 to a folder with its archives")
    if importlib.util.find_spec("PIL") is None:
        pytest.skip("making the CIFAR-10 archives needs Pillow")
    folder = tmp_path_factory.mktemp("cifar10")
    subprocess.run(
        [sys.executable, maker, folder, "--train", "5000", "--test", "1000"],
        check=True,
        capture_output=True,
    )
    return folder
