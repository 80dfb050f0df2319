"""Local folders for outputs at remote addresses, which TFX's entrypoint passes on Vertex AI.

A training renames, syncs and appends to its files. An object store supports none of these.
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
    """Gives each remote artifact a local folder, and copies the folder to the address on success.

    Local artifacts are unchanged.
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
