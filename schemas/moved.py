"""Modules that moved, under their old names. The version after the next one drops these names."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence

MOVED = {
    "stagecraft.components.better_than_constant": "components.evaluator.better_than_constant",
    "stagecraft.components.classification": "components.evaluator.classification",
    "stagecraft.components.code_fingerprint": "components.fingerprints.code_fingerprint",
    "stagecraft.components.evaluation": "components.evaluator.results",
    "stagecraft.components.misclassified": "components.evaluator.misclassified",
    "stagecraft.pipeline.kubeflow.compiling": "pipeline.kubeflow.compile",
    "stagecraft.pipeline.kubeflow.settings": "pipeline.settings.kubeflow",
    "stagecraft.pipeline.tfx_command.running": "pipeline.tfx_command.engine_option",
    "stagecraft.pipeline.vertex.compiling": "pipeline.vertex.compile",
    "stagecraft.trainer_module.export": "trainer_module.training.export",
    "stagecraft.trainer_module.input_data": "trainer_module.data.input_data",
    "stagecraft.trainer_module.record": "trainer_module.training.record",
    "stagecraft.trainer_module.topology": "trainer_module.parallel.topology",
}
"""Old name -> new name, below ``stagecraft``."""


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the new module where an old name is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__name__
        new = f"stagecraft.{MOVED[name]}"
        warnings.warn(f"{name} is deprecated; import {new}", DeprecationWarning, stacklevel=2)
        # importlib returns whatever sys.modules holds when exec_module ends.
        sys.modules[name] = importlib.import_module(new)


def install() -> None:
    """Lets Python find the old names; a second call changes nothing."""
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.append(_Alias())
