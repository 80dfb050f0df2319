"""Half a cosine (Loshchilov and Hutter 2016, "SGDR", equation 5)."""

from __future__ import annotations

import math
from typing import Any

from stagecraft.trainer_module.optimization.schedule import Schedule


class Cosine(Schedule):
    """Half a cosine (Loshchilov and Hutter 2016, "SGDR", equation 5)."""

    name = "cosine"
    description = "falls to 0 along half a cosine"

    def decay(self, progress: Any) -> Any:
        """``(1 + cos(pi p)) / 2``."""
        import tensorflow as tf

        return (1.0 + tf.cos(math.pi * progress)) / 2.0


COSINE = Cosine()
