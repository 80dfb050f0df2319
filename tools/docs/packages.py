"""Gives the folders their import names, so that mkdocstrings reads their docstrings.

They are read as text, never imported: a build needs no TensorFlow.
"""

from __future__ import annotations

import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("common", "schemas", "trainer_module", "components", "pipeline", "contrib")


def on_startup(**given: Any) -> None:
    """Links ``.docs_path/stagecraft/components`` and so on, before mkdocstrings looks there."""
    del given
    package = ROOT / ".docs_path" / "stagecraft"
    package.mkdir(parents=True, exist_ok=True)
    for there in (*(ROOT / folder for folder in FOLDERS), *(ROOT / "library").iterdir()):
        link = package / there.name
        if not link.is_symlink():
            link.symlink_to(there)
