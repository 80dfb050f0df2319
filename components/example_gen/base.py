"""The base of ExampleGens that read one source, a path or ``sample``, into three splits."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_component
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from stagecraft.components.example_gen import driver
from stagecraft.components.example_gen.archives import files
from stagecraft.components.fingerprints.code_fingerprint import code_fingerprint


def parameters(**kinds: type) -> dict[str, ExecutionParameter]:
    """The execution parameters of such an ExampleGen, with more of these types."""
    kinds = {"source": str, "val_fraction": float, "shards": int, "code_fingerprint": str, **kinds}
    return {
        **{name: ExecutionParameter(type=kind) for name, kind in kinds.items()},
        driver.RANGE: ExecutionParameter(type=str, optional=True),
    }


class SourceSpec(types.ComponentSpec):
    """Interface of such an ExampleGen."""

    PARAMETERS = parameters()
    INPUTS: dict[str, ChannelParameter] = {}
    OUTPUTS = {"examples": ChannelParameter(type=standard_artifacts.Examples)}


class SourceExampleGen(base_beam_component.BaseBeamComponent):
    """Has the output ``examples``; the content of the source is in the cache key."""

    DRIVER_CLASS = driver.Driver

    def __init__(self, source: Any, span: Any, **properties: Any) -> None:
        """Configures the source.

        Args:
            source: a path, ``sample``, or a runtime parameter.
            span: of a ``source`` with words such as ``{SPAN}``: ``latest``, a number, or a date.
            **properties: the other execution properties of the spec.

        Raises:
            UserError: no file system reads the path, or it has no such span.
        """
        if isinstance(source, str):  # a runtime parameter has no value yet
            files.check_scheme(source)
        super().__init__(
            self.SPEC_CLASS(
                source=source,
                code_fingerprint=code_fingerprint(self.EXECUTOR_SPEC.executor_class.__module__),
                examples=types.Channel(type=standard_artifacts.Examples),
                **driver.choice(span),
                **properties,
            )
        )
