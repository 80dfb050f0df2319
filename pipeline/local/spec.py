"""What the process that shows a run tells the one that runs it."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from stagecraft.pipeline.settings import PipelineSettings

SCRATCH = "stagecraft-run-"
"""How the name of a run's temporary folder begins."""

CREATE_PIPELINE = "stagecraft.pipeline.pipeline:create_pipeline"


@dataclasses.dataclass(frozen=True)
class RunSpec:
    """One run of a pipeline."""

    settings: PipelineSettings
    output: pathlib.Path
    """Holds everything that the run leaves."""

    runner: str = "local"
    """``local`` or ``beam``."""

    from_node: str | None = None
    to_node: str | None = None
    fresh: bool = False
    """Whether the output's checkpoints are forgotten first."""

    command: str = ""
    """The command line that asks for the run, without secrets."""

    create: str = CREATE_PIPELINE
    """``module:function`` of the function ``(settings, output) -> Pipeline``."""

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
