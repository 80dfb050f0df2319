"""Which training it is: the name of its checkpoint folder.

A retried Trainer must find the checkpoints of the attempt before, and changed
data, code or settings must never find those of another training. Artifacts are
known by content, not by URI: URIs begin anew with a new metadata store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tfx.dsl.io import fileio

_BLOCK = 1 << 20


def training_key(
    folders: Mapping[str, Iterable[str]], settings: Mapping[str, Any], code: str
) -> str:
    """24 hexadecimal digits that stand for data, settings and code.

    Args:
        folders: what for -> the folders whose files are read (splits, transform graph, schema).
        settings: ``TrainingSettings.flat()``. Of ``parallel_*`` only the precision counts: a
            checkpoint fits any topology, so that a training can go on with fewer or more devices.
        code: fingerprint of the code.
    """
    identity = {
        "data": {name: [_digest(folder) for folder in paths] for name, paths in folders.items()},
        "settings": {
            name: value
            for name, value in settings.items()
            if not name.startswith("parallel_") or name == "parallel_precision"
        },
        "code": code,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]


def _digest(folder: str) -> str:
    """Of all files below ``folder``: relative paths, lengths and contents."""
    digest = hashlib.sha256()
    paths = [
        os.path.join(parent, name) for parent, _, names in fileio.walk(folder) for name in names
    ]
    for path in sorted(paths):
        content = hashlib.sha256()
        with fileio.open(path, "rb") as file:
            while block := file.read(_BLOCK):
                content.update(block)
        digest.update(f"{os.path.relpath(path, folder)} {content.hexdigest()}\n".encode())
    return digest.hexdigest()
