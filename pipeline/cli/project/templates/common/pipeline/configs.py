"""Names and folders. The settings are in ``settings.yaml``."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from stagecraft.pipeline import load_settings

PROJECT = pathlib.Path(__file__).resolve().parents[1]
"""The folder of this project."""

SETTINGS = load_settings(str(PROJECT / "settings.yaml"))

PIPELINE_NAME = SETTINGS.name

OUTPUT = PROJECT / "runs" / PIPELINE_NAME
"""Folder for everything that a run on this machine writes."""


@contextlib.contextmanager
def in_project() -> Iterator[None]:
    """Changes to the project's folder, where paths in ``settings.yaml`` start."""
    before = os.getcwd()
    os.chdir(PROJECT)
    try:
        yield
    finally:
        os.chdir(before)
