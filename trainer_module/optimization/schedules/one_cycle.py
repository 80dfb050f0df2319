"""Linear up and down (Smith 2018, "A disciplined approach")."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.optimization.schedule import Schedule


class OneCycle(Schedule):
    """Linear up and down (Smith 2018, "A disciplined approach")."""

    name = "one_cycle"
    description = "rises for 30 % of all steps (or train.warmup_steps), then falls linearly to 0"
    default_warmup = 0.3

    def decay(self, progress: Any) -> Any:
        """``1 - p``."""
        return 1.0 - progress


ONE_CYCLE = OneCycle()
