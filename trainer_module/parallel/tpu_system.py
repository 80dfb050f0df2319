"""The TPU of this process. Never run on one: no TPU was at hand."""

from __future__ import annotations

import functools
from typing import Any

from stagecraft.schemas.errors import SettingError


@functools.cache
def connect() -> Any:
    """Finds the TPU, connects to it and prepares it, once a process.

    Untested on hardware. TensorFlow looks for the address itself: in the environment
    variables ``KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS`` (set by GKE) and ``TPU_NAME`` (a name, or
    ``grpc://host:port``; ``local`` where the TPU is in this machine), then on Google Cloud.

    Returns:
        A ``tf.distribute.cluster_resolver.TPUClusterResolver``.

    Raises:
        UserError: there is none, or it does not answer.
    """
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # No name: ValueError; not on Google Cloud: OSError; its client is missing: ImportError,
    # or RuntimeError; no answer: OpError.
    except (ValueError, OSError, ImportError, RuntimeError, tf.errors.OpError) as error:
        raise SettingError(
            "parallel.strategy",
            "tpu",
            f"needs a TPU, but TensorFlow cannot reach one ({error})",
            "the environment variable TPU_NAME with the name or address of a TPU, or "
            "parallel.strategy: mirrored",
        ) from error
    return resolver


def cores() -> int:
    """Number of the TPU's cores, each of them a replica.

    Raises:
        UserError: as :func:`connect`.
    """
    import tensorflow as tf

    connect()
    return len(tf.config.list_logical_devices("TPU"))
