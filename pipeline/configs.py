"""Names and paths from the settings, in the module where users of TFX look for them.

``stagecraft run`` has options for the settings. The ``tfx`` command has none, so the environment
names them: ``STAGECRAFT_CONFIG`` is a preset or a YAML file, ``STAGECRAFT_SET`` a list of
``key=value`` separated by spaces, ``STAGECRAFT_OUTPUT`` a folder.
"""

from __future__ import annotations

import os
import pathlib
import shlex

from stagecraft.pipeline.local import layout
from stagecraft.pipeline.settings import load

SETTINGS = load(
    os.environ.get("STAGECRAFT_CONFIG", "quickstart"),
    tuple(shlex.split(os.environ.get("STAGECRAFT_SET", ""))),
)

PIPELINE_NAME = SETTINGS.name

OUTPUT = pathlib.Path(os.environ.get("STAGECRAFT_OUTPUT", f"runs/{PIPELINE_NAME}"))
"""Folder for everything that a run writes. ``local_runner.py`` resolves a relative path from its
own folder, because users may call the ``tfx`` command from any folder."""

PIPELINE_ROOT = layout.pipeline_root(OUTPUT)

METADATA_PATH = layout.metadata_db(OUTPUT)
