"""These tests need logical CPUs, and so a process of their own: see ``test_logical_cpus.py``."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

collect_ignore_glob = [] if os.environ.get("STAGECRAFT_LOGICAL_CPUS") else ["test_*.py"]

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for `driving`, and `networks` by name


@pytest.fixture(scope="session", autouse=True)
def _five_logical_cpus() -> None:
    from stagecraft.trainer_module.settings import ParallelSettings
    from stagecraft.trainer_module.topology import configure_devices

    configure_devices(ParallelSettings(virtual_devices=5))
