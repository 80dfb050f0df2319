"""Silence for libraries that print when they are imported."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator, Sequence

from stagecraft.pipeline.kubeflow.entrypoint.step_log import holding_stderr

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Hides warnings of libraries that the block imports; later processes show theirs."""
    is_set = _LEVEL in os.environ
    hide_warnings()
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(_LEVEL, None)
            sys.meta_path[:] = [
                finder for finder in sys.meta_path if not isinstance(finder, _QuietTensorFlow)
            ]


def hide_warnings() -> None:
    """Hides warnings of libraries; call it before they are imported."""
    is_loaded = "tensorflow" in sys.modules or any(
        isinstance(finder, _QuietTensorFlow) for finder in sys.meta_path
    )
    if os.environ.setdefault(_LEVEL, "3") != "0" and not is_loaded:  # 0: a user wants all lines
        sys.meta_path.insert(0, _QuietTensorFlow())
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module="google.api_core")
    logging.getLogger("stagecraft").addHandler(logging.NullHandler())


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    """Holds stderr while TensorFlow is imported: 2.17 and newer log before they read the level."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The module as other finders find it, and a loader that prints only if it fails."""
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        if found is not None and found.loader is not None:
            execute = found.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                with holding_stderr():
                    execute(module)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found
