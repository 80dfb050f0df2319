"""The log of a step: lines of this project and of the user, and warnings of libraries.

Imports of TFX alone log hundreds of lines. They appear with ``STAGECRAFT_LOG_LEVEL=DEBUG``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator

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
    with holding_stderr():
        import tensorflow  # noqa: F401 (2.17 and newer log before they read TF_CPP_MIN_LOG_LEVEL)


@contextlib.contextmanager
def holding_stderr() -> Iterator[None]:
    """Shows the lines that native code writes only if the block fails.

    If the process dies inside the block, for example of SIGILL, stderr shows Python's traceback.
    """
    stderr, was_enabled = os.dup(2), faulthandler.is_enabled()
    with tempfile.TemporaryFile() as held, open(stderr, "wb") as shown:
        faulthandler.enable(shown)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            held.seek(0)
            shutil.copyfileobj(held, shown)
            raise
        finally:
            os.dup2(stderr, 2)
            faulthandler.disable()
            if was_enabled:
                faulthandler.enable(2)  # sys.stderr may be no file, such as a notebook's


def _concerns_user(record: logging.LogRecord) -> bool:
    found = _PACKAGE.search(record.pathname)
    if found is None or found[1] not in _LIBRARIES:
        return True
    return record.levelno >= logging.WARNING and not record.getMessage().startswith(_KNOWN)
