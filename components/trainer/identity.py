"""Which training it is: the name of its checkpoint folder.

A retried Trainer must find the checkpoints of the attempt before, and changed
data or code must never find those of another training. Changed settings do find
them: the trainer compares, and says what differs. Artifacts are known by content,
not by URI: URIs begin anew with a new metadata store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping

from tfx.dsl.io import fileio

_BLOCK = 1 << 20


def training_key(folders: Mapping[str, Iterable[str]], code: str, resume_id: str) -> str:
    """24 hexadecimal digits that stand for data, code and ``resume_id``.

    Args:
        folders: what for -> the folders whose files are read (splits, transform graph, schema).
        code: fingerprint of the code.
        resume_id: ``train.resume_id``, which keeps trainings of the same data and code apart.
    """
    identity = {
        "data": {name: [_digest(folder) for folder in paths] for name, paths in folders.items()},
        "code": code,
        "resume_id": resume_id,
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
