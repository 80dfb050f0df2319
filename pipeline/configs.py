"""Names and paths, where users of TFX look for them; all from the settings.

``stagecraft run`` is told what to run by options. What the ``tfx`` command runs takes no options,
so it is told by the environment: ``STAGECRAFT_CONFIG`` is a preset's name or a YAML file,
``STAGECRAFT_SET`` a list of ``key=value`` separated by spaces, ``STAGECRAFT_OUTPUT`` a folder.
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
"""Holds everything that a run leaves; ``local_runner.py`` takes a relative one from its own
folder, because the ``tfx`` command may be called from anywhere."""

PIPELINE_ROOT = layout.pipeline_root(OUTPUT)

METADATA_PATH = layout.metadata_db(OUTPUT)
