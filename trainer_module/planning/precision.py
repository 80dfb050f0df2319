"""The choice of ``parallel.precision: auto``: mixed_bfloat16 if the model gains by it.

Whether it gains depends on the model: a processor multiplies matrices of bfloat16 faster, but casts
and small layers take longer. So a step of both is timed on the device, in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.parallel import native_bfloat16
from stagecraft.trainer_module.parallel.devices import Topology
from stagecraft.trainer_module.planning import measure
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

AUTO, WHOLE, HALF = "auto", "float32", "mixed_bfloat16"

GAIN = 1.1
"""The least speedup for which the 8 bits of bfloat16's fractions are worth it."""

MOST_EXAMPLES = 64
"""Of a timed step: more take longer, and the ratio stays."""


class Choice(NamedTuple):
    """A precision, and what decided."""

    precision: str
    reason: str
    """A phrase for people."""
    float32_seconds: float | None = None
    """Median of a timed step, forward and backward; None: not timed."""
    mixed_bfloat16_seconds: float | None = None


def choose(
    settings: TrainingSettings,
    devices: Topology,
    build: Callable[[str], keras.Model],
    earlier: str | None,
) -> Choice | None:
    """The precision for ``auto``; None: the settings name one.

    Args:
        devices: of this process; the first one decides.
        build: builds the model with a precision.
        earlier: the precision of the checkpoints that the training continues; None: it begins.
    """
    if settings.parallel.precision != AUTO:
        return None
    if earlier is not None:
        return Choice(earlier, "as in the checkpoints of this training run")
    device = devices.devices[0]
    native, words = native_bfloat16.support(device)
    if not native:
        return Choice(WHOLE, f"{device} is {words}")
    if device.startswith("TPU"):
        return Choice(HALF, f"{device} is {words}")
    parallel = settings.parallel
    examples = min(settings.train.batch_size // parallel.parts, MOST_EXAMPLES)
    whole, half = _seconds(build, parallel, examples, device)
    chosen = HALF if whole >= GAIN * half else WHOLE
    reason = (
        f"{device} is {words}, and a pass of {examples} examples takes {half:.3g} s in {HALF}, "
        f"{whole:.3g} s in {WHOLE}"
    )
    return Choice(chosen, reason, whole, half)


def applied(settings: TrainingSettings, choice: Choice | None) -> TrainingSettings:
    """The settings with the chosen precision in place of ``auto``."""
    if choice is None:
        return settings
    parallel = settings.parallel.model_copy(update={"precision": choice.precision})
    return settings.model_copy(update={"parallel": parallel})


def _seconds(
    build: Callable[[str], keras.Model], parallel: ParallelSettings, examples: int, device: str
) -> tuple[float, float]:
    """Seconds of a forward and backward pass in float32, and in mixed_bfloat16."""
    with tf.device("CPU:0"):
        models = [build(WHOLE), build(HALF)]
    whole, half = measure.pass_seconds(
        models, examples=examples, device=device, jit=parallel.jit, remat=parallel.remat
    )
    return whole, half
