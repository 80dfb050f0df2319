"""Gives the folders their import names, so that mkdocstrings reads their docstrings.

They are read as text, never imported: a build needs no TensorFlow.
"""

from __future__ import annotations

import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("schemas", "trainer_module", "components", "pipeline")


def on_config(config: Any) -> None:
    """Links ``build/docs/stagecraft/components`` and so on, where mkdocs.yml says to look."""
    package = ROOT / "build" / "docs" / "stagecraft"
    package.mkdir(parents=True, exist_ok=True)
    for folder in FOLDERS:
        link = package / folder
        if not link.is_symlink():
            link.symlink_to(ROOT / folder)
