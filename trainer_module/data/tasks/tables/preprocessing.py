"""The ``preprocessing_fn`` of all tasks that declare columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module import registries


def preprocessing_fn(inputs: Mapping[str, Any], custom_config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the transformed features of the task in ``custom_config``.

    Args:
        inputs: a batch of raw features.
        custom_config: of Transform: ``{"task": {"name": …, "args": …}}``.
    """
    task = registries.task(custom_config["task"]["name"], custom_config["task"]["args"])
    result: dict[str, Any] = task.preprocess(inputs)
    return result
