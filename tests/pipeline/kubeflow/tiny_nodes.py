"""Small components that show what reaches an executor."""

from __future__ import annotations

import json
import os
import pathlib
import threading
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.dsl.io import fileio
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.component_spec import ChannelParameter, ComponentSpec, ExecutionParameter


class Report(Artifact):
    """An artifact type of somebody's own."""

    TYPE_NAME = "tiny_nodes.Report"


class CopyExecutor(base_executor.BaseExecutor):
    """Copies a file from input to output, and tells what it was given."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:
        (model,), (report,) = input_dict["model"], output_dict["report"]
        fileio.makedirs(report.uri)
        with fileio.open(os.path.join(model.uri, "file"), "r") as file:
            text = file.read()
        with fileio.open(os.path.join(report.uri, "file"), "w") as file:
            file.write(text.upper())
        report.set_string_custom_property("was_at", model.uri)
        told = {"type": type(report).__name__, "steps": model.get_int_custom_property("steps")}
        report.set_string_custom_property("told", json.dumps({**told, **exec_properties}))


class SlowExecutor(base_executor.BaseExecutor):
    """Works until it is asked to stop, and saves then."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:
        from stagecraft.trainer_module.processes import preemption

        preemption.expect_checkpoint()
        folder = pathlib.Path(exec_properties["folder"])
        (folder / "began").touch()
        while not preemption.requested():
            threading.Event().wait(0.05)
        (folder / "saved").touch()
        os._exit(143)


class CopySpec(ComponentSpec):
    INPUTS = {"model": ChannelParameter(type=standard_artifacts.Model)}
    OUTPUTS = {"report": ChannelParameter(type=Report)}
    PARAMETERS = {
        "times": ExecutionParameter(type=int),
        "rate": ExecutionParameter(type=float, optional=True),
    }


class Copy(base_component.BaseComponent):
    """Copies a model."""

    SPEC_CLASS = CopySpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(CopyExecutor)

    def __init__(self, model: types.BaseChannel, times: Any, rate: Any = None):
        super().__init__(
            CopySpec(model=model, times=times, rate=rate, report=types.Channel(type=Report))
        )


class MakeSpec(ComponentSpec):
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {
        "model": ChannelParameter(type=standard_artifacts.Model),
        "number": ChannelParameter(type=standard_artifacts.Integer),
    }
    PARAMETERS: dict[str, ExecutionParameter] = {}


class MakeExecutor(base_executor.BaseExecutor):
    """Writes a file and a number."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:
        (model,), (number,) = output_dict["model"], output_dict["number"]
        fileio.makedirs(model.uri)
        with fileio.open(os.path.join(model.uri, "file"), "w") as file:
            file.write("content")
        model.set_int_custom_property("steps", 30)
        number.value = 3


class Make(base_component.BaseComponent):
    """Makes a model, and a number."""

    SPEC_CLASS = MakeSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(MakeExecutor)

    def __init__(self) -> None:
        super().__init__(
            MakeSpec(
                model=types.Channel(type=standard_artifacts.Model),
                number=types.Channel(type=standard_artifacts.Integer),
            )
        )


def pipeline(root: str = "minio://bucket/base", name: str = "tiny", **parameters: Any) -> Any:
    """Make, then Copy with Make's number of times."""
    from tfx.orchestration.pipeline import Pipeline

    make = Make()
    copy = Copy(make.outputs["model"], make.outputs["number"].future()[0].value, **parameters)
    return Pipeline(name, root, components=[make, copy], enable_cache=True)
