"""Linear up and down, from and to given shares of the peak (Smith 2018; Jordan 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stagecraft.common import signatures
from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.optimization.schedule import ARGS, RateSchedule
from stagecraft.trainer_module.settings import TrainSettings

START, END = 0.2, 0.07
"""The first and the last rate, as shares of the peak: those of ``airbench94`` (Jordan 2024, "94% on
CIFAR-10 in 3.29 seconds on a single GPU")."""


class Triangular(RateSchedule):
    """Rises from ``start`` to 1 and falls to ``end``, both shares of the peak, linearly.

    ``one_cycle`` begins and ends next to 0. The first and the last steps of a short training are
    too many to spend them at such a rate.
    """

    name = "triangular"
    description = (
        "rises for 23 % of all steps (or train.warmup_steps) from start (0.2) to 1, then falls to "
        "end (0.07), times the peak (train.schedule_args)"
    )
    default_warmup = 0.23

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Checks the names and values in ``train.schedule_args``.

        Raises:
            SettingError: a name is neither ``start`` nor ``end``, or a value no share.
        """
        signatures.check(ARGS, arguments, {"start": False, "end": False}, {})
        for name, value in arguments.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= 1:
                problem = f"is no share of the peak, as {name} is"
                raise SettingError(ARGS, value, problem, "a number from 0 to 1")

    def rates(self, train: TrainSettings) -> Callable[[Any, Any, Any], Any]:
        """The peak, times the rise from ``start``, times the fall to ``end``; one of both is 1."""
        given = train.schedule_args
        start, end = given.get("start", START), given.get("end", END)

        def rate(rising: Any, progress: Any, _: Any) -> Any:
            risen = start + (1.0 - start) * rising
            return train.learning_rate * risen * (1.0 - (1.0 - end) * progress)

        return rate


TRIANGULAR = Triangular()
