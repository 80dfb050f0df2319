"""``stagecraft.Parallel``: the settings of a topology, with errors for a caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stagecraft.schemas.base_settings import readable
from stagecraft.trainer_module.parallel.settings import ParallelSettings


class Parallel(ParallelSettings):
    """The topology of a training: the settings of ``parallel:``.

    Raises:
        UserError: a setting is invalid, or two of them exclude each other.
    """

    if not TYPE_CHECKING:  # mypy reads the fields

        def __init__(self, **settings: Any):
            with readable("parallel"):
                super().__init__(**settings)
