"""Names and folders. The settings are in ``settings.yaml``."""

import pathlib

from stagecraft.pipeline import load_settings

PROJECT = pathlib.Path(__file__).resolve().parents[1]
"""The folder of this project."""

SETTINGS = load_settings(str(PROJECT / "settings.yaml"))

PIPELINE_NAME = SETTINGS.name

OUTPUT = PROJECT / "runs" / PIPELINE_NAME
"""Folder for everything that a run on this machine writes."""
