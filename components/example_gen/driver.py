"""Puts the content of the source, not its path, into TFX's cache key."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any

from tfx.dsl.components.base import base_driver
from tfx.orchestration import data_types_utils, metadata
from tfx.orchestration.portable import base_driver as portable_base_driver, data_types
from tfx.proto.orchestration import driver_output_pb2, pipeline_pb2

from stagecraft.common.errors import UserError
from stagecraft.components.example_gen import source, spans
from stagecraft.components.example_gen.content import Source
from stagecraft.components.example_gen.spans import Span
from stagecraft.components.metadata import outputs

FINGERPRINT = "fingerprint"  # execution property: SHA-256 of the content, hexadecimal

RANGE = "range_config"
"""Execution property, as TFX's ExampleGens have it; here a text, as ``data.span``."""


class Driver(base_driver.BaseDriver, portable_base_driver.BaseDriver):
    """Resolves the source, and replaces its path by a fingerprint of its content.

    If the source is a pattern of spans, the driver also finds the span, and adds its number and its
    version to the execution properties and to the examples, as TFX's drivers do.

    TFX makes its cache key from the execution properties that the driver returns. The executor
    restores the original ones by :func:`original_properties`.
    """

    resolve: Callable[[Mapping[str, Any]], Source] = staticmethod(source.resolve)
    """Finds the source in execution properties."""

    def __init__(self, metadata_handle: metadata.Metadata) -> None:
        base_driver.BaseDriver.__init__(self, metadata_handle)
        portable_base_driver.BaseDriver.__init__(self, metadata_handle)

    def run(self, execution_info: data_types.ExecutionInfo) -> driver_output_pb2.DriverOutput:
        """Returns execution properties that differ exactly if the content differs."""
        # If the executor raised this, TFX would remove the folder.
        if execution_info.pipeline_node is not None:  # in a container, an attempt may be repeated
            outputs.check_empty(execution_info.output_dict)
        properties, span = located(execution_info.exec_properties)
        found = self.resolve(properties)
        result = driver_output_pb2.DriverOutput()
        original = original_properties(execution_info.pipeline_node)
        neutral = {name: type(value)() for name, value in original.items()}
        told: dict[str, Any] = {FINGERPRINT: found.fingerprint()}
        if span is not None:
            # Not how it was chosen: a run for the newest span may reuse it.
            told |= {RANGE: "", spans.SPAN: span.number}
            told |= {} if span.version is None else {spans.VERSION: span.version}
            series = spans.series(
                {**execution_info.exec_properties, "in_common": found.in_common()}
            )
            output = copy.deepcopy(execution_info.output_dict["examples"][0].mlmd_artifact)
            describe(output, span, series)
            result.output_artifacts["examples"].artifacts.append(output)
        for name, value in (neutral | told).items():
            data_types_utils.set_metadata_value(result.exec_properties[name], value)
        return result


def choice(span: Any) -> dict[str, Any]:
    """The execution properties that choose a span; none for the newest one.

    Args:
        span: ``latest``, a number, a date, or a runtime parameter.
    """
    if isinstance(span, (str, int)):
        spans.number_of(str(span))
    return {} if span == spans.LATEST else {RANGE: str(span) if isinstance(span, int) else span}


def located(properties: Mapping[str, Any]) -> tuple[dict[str, Any], Span | None]:
    """Execution properties whose source is the path of a span, if it was a pattern of spans.

    Args:
        properties: with the number of the span, if the driver has found it before.

    Raises:
        UserError: there is no such span, or several files or folders have its name.
    """
    given = str(properties["source"])
    if not spans.has(given):
        return dict(properties), None
    wanted = str(properties.get(RANGE, spans.LATEST))
    if spans.SPAN in properties:
        wanted = str(int(properties[spans.SPAN]))
    span = spans.find([os.path.expanduser(given)], wanted)
    path = span.paths[0] if len(span.paths) == 1 else None
    if given.endswith("/*"):
        path = os.path.dirname(span.patterns[0])
    if path is None:
        raise UserError(
            f"{span.patterns[0]}: {len(span.paths)} files and folders have this name, but a span "
            "of this data is one file or one folder. Use a pattern with one for each span.",
            setting="source",
            value=given,
            file=span.patterns[0],
        )
    return {**properties, "source": path}, span


def describe(examples: Any, span: Span, series: str) -> None:
    """Sets the custom properties of a span on an Examples artifact of ML Metadata."""
    for name, value in (span.properties() | {spans.SERIES: series}).items():
        data_types_utils.set_metadata_value(examples.custom_properties[name], value)


def original_properties(node: pipeline_pb2.PipelineNode | None) -> dict[str, Any]:
    """The original values of the properties that locate the source.

    Runtime parameters are left out: the driver keeps their values.
    """
    parameters = node.parameters.parameters if node is not None else {}
    return {
        name: data_types_utils.get_metadata_value(parameters[name].field_value)
        for name in source.PROPERTIES
        if name in parameters and parameters[name].HasField("field_value")
    }
