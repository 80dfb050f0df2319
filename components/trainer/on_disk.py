"""Outputs that are addresses, not folders, as TFX's entrypoint hands them over on Vertex AI.

A training renames, syncs and appends to what it writes, which no object store can.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from tfx import types
from tfx.utils import io_utils


@contextlib.contextmanager
def on_disk(outputs: dict[str, list[types.Artifact]]) -> Iterator[None]:
    """Gives artifacts at addresses a local folder each, copied to the address when all went well.

    Artifacts in folders stay as they are.
    """
    remote = [
        artifact
        for artifacts in outputs.values()
        for artifact in artifacts
        if "://" in artifact.uri
    ]
    addresses = [artifact.uri for artifact in remote]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [os.path.join(scratch, str(index)) for index in range(len(remote))]
        try:
            for folder, artifact in zip(folders, remote, strict=True):
                os.mkdir(folder)
                artifact.uri = folder
            yield
        finally:
            for address, artifact in zip(addresses, remote, strict=True):
                artifact.uri = address
        for folder, address in zip(folders, addresses, strict=True):
            io_utils.copy_dir(folder, address)
