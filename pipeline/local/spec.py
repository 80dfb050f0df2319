"""The specification of a run, which the supervisor sends to the process of the run."""

from __future__ import annotations

import pathlib

import pydantic
import pydantic.dataclasses

from stagecraft.pipeline.settings import PipelineSettings

SCRATCH = "stagecraft-run-"

CREATE_PIPELINE = "stagecraft.pipeline.pipeline:create_pipeline"


@pydantic.dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run of a pipeline."""

    settings: PipelineSettings
    output: pathlib.Path
    runner: str = "local"
    """``local`` or ``beam``."""

    from_node: str | None = None
    to_node: str | None = None
    fresh: bool = False
    """Whether the run first deletes the output's checkpoints."""

    command: str = ""
    """The command line of the run, without secrets."""

    create: str = CREATE_PIPELINE
    """``module:function`` of a function ``(settings, output) -> Pipeline``."""

    def to_json(self) -> str:
        """One line, for the pipe between the processes."""
        return pydantic.TypeAdapter(RunSpec).dump_json(self).decode()

    @classmethod
    def from_json(cls, line: str) -> RunSpec:
        """The inverse of :meth:`to_json`."""
        return pydantic.TypeAdapter(cls).validate_json(line)
