"""What a Beam runner is: the value of ``beam.runner``. Imports no Beam."""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.schemas.registry import Entry, Registry

RUNNERS = Registry(
    "stagecraft.pipeline.beam.runner:Runner",
    "beam.runner",
    "stagecraft.pipeline.beam.runners",
    "stagecraft.beam_runners",
)


class Runner(Entry):
    """Base of the values of ``beam.runner``: a file in ``runners/``, or an entry point."""

    beam_name: str
    """Beam's runner: its name, or the dotted path of its class."""

    def arguments(self, given: Sequence[str]) -> list[str]:
        """Pipeline arguments, besides those that are ``given`` (``beam.args``)."""
        return [f"--runner={self.beam_name}"]
