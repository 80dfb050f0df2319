"""Which training it is: the name of its checkpoint folder.

A retried Trainer must find the checkpoints of the attempt before, and changed
data or code must never find those of another training. Changed settings do find
them: the trainer compares, and says what differs. Artifacts are known by content,
not by URI: URIs begin anew with a new metadata store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from stagecraft.components.fingerprints.content_digest import folder_digest


def training_key(
    folders: Mapping[str, Iterable[str]], code: str, resume_id: str, weights: str = ""
) -> str:
    """24 hexadecimal digits that stand for data, code, initial weights and ``resume_id``.

    Args:
        folders: what for -> the folders whose files are read (splits, transform graph, schema).
        code: fingerprint of the code.
        resume_id: ``train.resume_id``, which keeps trainings of the same data and code apart.
        weights: digest of ``train.initial_weights``; empty: there are none.
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
