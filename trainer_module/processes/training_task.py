"""A training as one line of text, for another process: a function, and TFX's arguments of it.

    {"run_fn": "package.module.function", "fn_args": {"train_files": …, "custom_config": …}}

The arguments are the fields of TFX's ``FnArgs``. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import types
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """A training."""

    run_fn: str
    """Dotted path of a function."""

    arguments: Any
    """Its argument: ``FnArgs``, or an object with these attributes."""

    @classmethod
    def parsed(cls, line: str) -> TrainingTask:
        """The inverse of :meth:`line`; ``data_accessor``, which holds functions, is None."""
        content = json.loads(line)
        fn_args = types.SimpleNamespace(data_accessor=None, **content["fn_args"])
        return cls(content["run_fn"], fn_args)

    def line(self) -> str:
        """The task as text."""
        return json.dumps({"run_fn": self.run_fn, "fn_args": self.fields})

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments that another process gets."""
        given = vars(self.arguments)
        return {name: value for name, value in given.items() if name != "data_accessor"}

    @property
    def settings(self) -> dict[str, Any]:
        """``TrainingSettings.flat()`` of the training."""
        flat: dict[str, Any] = self.arguments.custom_config["settings"]
        return flat

    def with_checkpoints(self, folder: str) -> TrainingTask:
        """The same training with another folder of checkpoints."""
        fields = {**self.fields, "working_dir": folder}
        return TrainingTask(self.run_fn, types.SimpleNamespace(**fields))

    def function(self) -> Callable[[Any], Any]:
        """Imports the function."""
        module, _, name = self.run_fn.rpartition(".")
        found: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
        return found
