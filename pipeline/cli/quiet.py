"""Commands that use TensorFlow in their own process say what they have to say, and no more."""

from __future__ import annotations

import logging
import os
import warnings


def quiet() -> None:
    """No warnings of libraries; call it before they are imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="google.api_core")
    logging.getLogger("stagecraft").addHandler(logging.NullHandler())
