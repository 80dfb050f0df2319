"""The ExampleGen of a pipeline, and the schema of its data."""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any

from tfx.dsl.components.base.base_component import BaseComponent

from stagecraft.pipeline.settings import PipelineSettings
from stagecraft.schemas.errors import SettingError

_IMAGE_FOLDER = "stagecraft.components.example_gen.image_folder.ImageFolderExampleGen"


def example_gen(settings: PipelineSettings, source: Any) -> BaseComponent:
    """The component that reads ``data.source``; its id is ``ExampleGen``, unless it reads CIFAR.

    Args:
        source: a path, or a runtime parameter.

    Raises:
        SettingError: the task has none.
    """
    task, data = settings.task.found, settings.data
    path = _IMAGE_FOLDER if settings.reads_image_folder else task.example_gen
    if path is None:
        raise SettingError("task.name", task.name, "names no ExampleGen")
    kind = pkgutil.resolve_name(path)
    values = {**data.model_dump(), "source": source, "dataset": data.dataset_name}
    known = inspect.signature(kind).parameters
    component: BaseComponent = kind(
        **{name: value for name, value in values.items() if name in known}, **task.example_gen_args
    )
    return component if settings.reads_cifar else component.with_id("ExampleGen")
