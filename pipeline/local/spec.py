"""The specification of a run, which the supervisor sends to the process of the run."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from stagecraft.pipeline.settings import PipelineSettings

SCRATCH = "stagecraft-run-"
"""Prefix of the name of a run's temporary folder."""

CREATE_PIPELINE = "stagecraft.pipeline.pipeline:create_pipeline"


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run of a pipeline."""

    settings: PipelineSettings
    output: pathlib.Path
    """Folder for everything that the run writes."""

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
        fields = dataclasses.asdict(self)
        fields["settings"] = self.settings.model_dump(mode="json")
        fields["output"] = str(self.output)
        return json.dumps(fields)

    @classmethod
    def from_json(cls, line: str) -> RunSpec:
        """The inverse of :meth:`to_json`."""
        fields = json.loads(line)
        fields["settings"] = PipelineSettings.model_validate(fields["settings"])
        fields["output"] = pathlib.Path(fields["output"])
        return cls(**fields)
