"""The settings that decide the cost of a step, without the rest of ``parallel:``."""

from __future__ import annotations

from typing import NamedTuple

from stagecraft.trainer_module.parallel.settings import ParallelSettings


class Degrees(NamedTuple):
    """Values of ``parallel:`` by their names; a search compares thousands of them."""

    strategy: str = ParallelSettings.model_fields["strategy"].default
    workers: int = 1
    replicas: int = 1
    stages: int = 1
    virtual_stages: int = 1
    shards: int = 1
    microbatches: int = 1
    accumulate: int = 1
    schedule: str = "1f1b"
    remat: bool = False
    zero: int = 0

    @classmethod
    def of(cls, parallel: ParallelSettings) -> Degrees:
        """Those of some settings."""
        return cls(**{name: getattr(parallel, name) for name in cls._fields})

    @property
    def parts(self) -> int:
        """Number of parts that the model is cut into."""
        return self.stages * self.virtual_stages

    @property
    def devices(self) -> int:
        """Number of devices of one worker."""
        return self.replicas * self.stages * self.shards
