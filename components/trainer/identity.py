"""The identity of a training, which names its checkpoint folder.

A retried Trainer must find the checkpoints of its earlier attempt. After a change of data or code,
it must not find them. After a change of settings it finds them; the training then compares the
settings and reports differences. Artifacts are identified by content, because URIs start again with
a new metadata store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from stagecraft.components.fingerprints.content_digest import folder_digest


def training_key(
    folders: Mapping[str, Iterable[str]], code: str, resume_id: str, weights: str = ""
) -> str:
    """24 hexadecimal digits that identify data, code, initial weights and ``resume_id``.

    Args:
        folders: role -> folders of the input (splits, transform graph, schema).
    """
    identity = {
        "data": {
            name: [folder_digest(folder) for folder in paths] for name, paths in folders.items()
        },
        "code": code,
        "resume_id": resume_id,
        **({"weights": weights} if weights else {}),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
