"""AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from stagecraft.trainer_module.optimization.optimizer import KerasOptimizer


class AdamW(KerasOptimizer):
    """``keras.optimizers.AdamW``."""

    name = "adamw"
    description = "Adam with decoupled weight decay (Loshchilov and Hutter 2017)"
    class_name = "AdamW"
    slots = 2
    elementwise = True


ADAMW = AdamW()
