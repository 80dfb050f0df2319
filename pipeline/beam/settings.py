"""Which runner runs the data components, and its arguments (``beam:``)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError
from stagecraft.common.settings import Settings
from stagecraft.pipeline.beam import arguments
from stagecraft.pipeline.beam.runner import RUNNERS, Runner


class BeamSettings(Settings):
    """The runner of Beam components (``beam:``)."""

    runner: Annotated[str, AfterValidator(RUNNERS.known)] = Field(
        "direct", description="Beam runner of the data steps; all but direct need beam.args"
    )
    args: tuple[str, ...] = Field(
        (),
        description='Beam arguments, such as "--flink_master=localhost:8081"; the results of '
        "earlier runs with other arguments are reused",
    )
    unchecked_args: tuple[str, ...] = Field(
        (),
        description="more arguments, of options that Beam does not know, such as those of your own "
        "code; another value runs the steps again",
    )

    @model_validator(mode="after")
    def _check(self) -> BeamSettings:
        for name in ("args", "unchecked_args"):
            if any(each.partition("=")[0] == "--runner" for each in getattr(self, name)):
                use = f"beam.runner: {' | '.join(RUNNERS.names())}"
                raise SettingError(f"beam.{name}", "--runner", "is set by beam.runner", use)
        if not any(map(secrets.is_left_out, self.args)):
            self.found.check(self.given)
        return self

    @property
    def found(self) -> Runner:
        """The runner."""
        found: Runner = RUNNERS.get(self.runner)
        return found

    @property
    def given(self) -> dict[str, Any]:
        """Name -> value of the options that ``args`` sets."""
        return arguments.parsed(self.args, self.found)

    def check_files(self) -> None:
        """Refuses files that do not exist on this machine.

        Raises:
            SettingError: an argument names such a file.
        """
        self.found.check_files(self.given)
