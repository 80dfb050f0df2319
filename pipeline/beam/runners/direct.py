"""Beam's runner in this process."""

from __future__ import annotations

from collections.abc import Sequence

from stagecraft.pipeline.beam.in_process import IN_PROCESS
from stagecraft.pipeline.beam.runner import Runner


class Direct(Runner):
    """Beam's Python runner, in the process of the pipeline."""

    name = "direct"
    description = "in the process of the pipeline"
    beam_name = IN_PROCESS

    def arguments(self, given: Sequence[str]) -> list[str]:
        """The runner, and an unused image."""
        # Without this unused name, TFX builds a source distribution of itself for every component:
        # 1.3 s each.
        return [*super().arguments(given), "--sdk_container_image=unused"]


DIRECT = Direct()
