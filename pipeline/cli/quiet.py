"""What libraries print when they are imported, which no reader of a command's output wants."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides warnings of libraries that the block imports; later processes show theirs."""
    name = "TF_CPP_MIN_LOG_LEVEL"
    is_set = name in os.environ
    hide_warnings()
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(name, None)


def hide_warnings() -> None:
    """Hides warnings of libraries; call it before they are imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="google.api_core")
    logging.getLogger("stagecraft").addHandler(logging.NullHandler())
