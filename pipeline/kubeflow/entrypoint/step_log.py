"""The log of a step: lines of this project and of the user, and warnings of libraries.

Imports of TFX alone log hundreds of lines. They appear with ``STAGECRAFT_LOG_LEVEL=DEBUG``.
"""

from __future__ import annotations

import logging
import os
import re
import warnings

LEVEL = "STAGECRAFT_LOG_LEVEL"
"""Environment variable: DEBUG for all lines; default: INFO."""

_FORMAT = "%(asctime)s %(levelname).1s %(message)s"
_PACKAGE = re.compile(r"/(?:site|dist)-packages/(\w+)")
_LIBRARIES = (
    *("absl", "aiobotocore", "apache_beam", "botocore", "fsspec", "google", "grpc", "h5py", "jax"),
    *("keras", "kfp", "kubernetes", "matplotlib", "ml_metadata", "numexpr", "s3fs", "tensorflow"),
    *("tensorflow_data_validation", "tensorflow_metadata", "tensorflow_model_analysis"),
    *("tensorflow_transform", "tf_keras", "tfx", "tfx_bsl", "urllib3"),
)
_KNOWN = ("Examples artifact does not have payload_format custom property",)
"""Warnings of TFX that ask nothing of a user."""


def configure() -> None:
    """Sets the log up; call it before importing TFX."""
    level = os.environ.get(LEVEL, "INFO").upper()
    logging.basicConfig(level=logging.INFO, format=_FORMAT)
    if level == "DEBUG":
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for category in (FutureWarning, DeprecationWarning, UserWarning):
        warnings.filterwarnings("ignore", category=category, module=f"({'|'.join(_LIBRARIES)})")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_concerns_user)


def _concerns_user(record: logging.LogRecord) -> bool:
    found = _PACKAGE.search(record.pathname)
    if found is None or found[1] not in _LIBRARIES:
        return True
    return record.levelno >= logging.WARNING and not record.getMessage().startswith(_KNOWN)
