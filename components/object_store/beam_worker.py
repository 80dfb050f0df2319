"""The module that Beam's workers import at their start (``--beam_plugin``).

Workers in other processes than the executor open ``minio://`` and ``s3://`` addresses after this
import: through Beam, TFX and TensorFlow. Their environment holds the credentials, see
:mod:`stagecraft.components.object_store.location`.
"""

from __future__ import annotations

from stagecraft.components.object_store import beam_filesystem, filesystem, tensorflow_files

assert beam_filesystem  # the import registers minio:// with Beam
filesystem.register()
tensorflow_files.install()
