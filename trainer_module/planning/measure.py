"""Measures how long the pieces of a model take on a device; each kind of piece is timed alone.

The kinds are timed in turns, so that a disturbance of the machine slows all of them. The time of
an empty call is subtracted: a stage makes one call for all of its pieces.

Such times also choose ``parallel.precision: auto``: mixed_bfloat16 if the model gains by it. That
depends on the model: a processor multiplies matrices of bfloat16 faster, but casts and small layers
take longer. So a step of both is timed on the device, in turns.
"""

from __future__ import annotations

import logging
import pathlib
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import model_graph
from stagecraft.trainer_module.models.costs import StageCost, Times
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.pipeline_parallel.stage import Stage
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

_log = logging.getLogger(__name__)

_LEAST_ROUNDS, _MOST_ROUNDS = 3, 20
_ENOUGH_SECONDS = 8.0
"""Time for all rounds together, beyond the least number of rounds."""

_LEAST_SECONDS = 1e-9
"""Lower limit for a pass as fast as an empty call: shares divide by the sum."""


def piece_times(
    pieces: Sequence[keras.Model],
    costs: Sequence[StageCost],
    *,
    examples: int,
    device: str,
    jit: bool = False,
    remat: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Times]:
    """Median seconds of one example through each piece, in a microbatch of ``examples``.

    Pieces are consecutive models; those of one kind in ``costs`` take equally long. ``on_progress``
    is called with the number of kinds compiled, and of all kinds.
    """
    kinds: dict[str, keras.Model] = {}
    for piece, cost in zip(pieces, costs, strict=True):
        kinds.setdefault(cost.kind, piece)
    given = tf.nest.map_structure(
        lambda each: keras.Input(each.shape[1:], dtype=each.dtype), model_graph.of(pieces[0])
    )
    empty = keras.Model(
        given, tf.nest.map_structure(lambda each: keras.layers.Identity()(each), given)
    )
    runs: list[Callable[[], Any]] = []
    for done, piece in enumerate([empty, *kinds.values()]):
        on_progress(done, len(kinds))
        runs += _runs(Stage(piece, jit=jit, remat=remat), examples, device)
        for run in runs[-2:]:
            _wait(run())  # traces it
    medians = _medians(runs)
    pairs = zip(medians[::2], medians[1::2], strict=True)
    overhead, *taken = (Times(forward, max(both - forward, 0)) for forward, both in pairs)
    times_of = {}
    for kind, times in zip(kinds, taken, strict=True):
        forward = max(times.forward - overhead.forward, _LEAST_SECONDS) / examples
        backward = max(times.backward - overhead.backward, _LEAST_SECONDS) / examples
        times_of[kind] = Times(forward, backward)
        _log.debug("%s: %s", kinds[kind].name, times_of[kind])
    return [times_of[cost.kind] for cost in costs]


def pass_seconds(
    models: Sequence[keras.Model], *, examples: int, device: str, jit: bool, remat: bool
) -> list[float]:
    """Median seconds of a forward and a backward pass through each whole model, in turns."""
    runs = [_runs(Stage(each, jit=jit, remat=remat), examples, device)[1] for each in models]
    for run in runs:
        _wait(run())  # traces it
    return _medians(runs)


def _runs(stage: Stage, examples: int, device: str) -> list[Callable[[], Any]]:
    """Two functions: forward; forward and backward."""
    with tf.device(device):
        values = [tf.identity(variable.value) for variable in stage.variables]
        given = _noise(stage.model, examples)
        step, rows = tf.constant(0, tf.int64), tf.range(examples, dtype=tf.int64)

    def forward() -> Any:
        with tf.device(device):
            return stage(values, given, step, rows).outputs

    def both() -> Any:
        with tf.device(device), tf.GradientTape(watch_accessed_variables=False) as tape:
            sources = [*stage.trained(values), *_floats(given)]
            tape.watch(sources)
            outputs, _, penalty = stage(values, given, step, rows)
        with tf.device(device):
            return outputs, tape.gradient(
                [*_floats(outputs), penalty],
                sources,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )

    return [tf.function(function, autograph=False) for function in (forward, both)]


def _noise(model: keras.Model, examples: int) -> Nest:
    specs = model_graph.specs(model_graph.sized(model), examples)
    return model_graph.noise(specs, np.random.default_rng(0))


def _floats(nest: Nest) -> list[tf.Tensor]:
    return [tensor for tensor in tf.nest.flatten(nest) if tensor.dtype.is_floating]


def _medians(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Median seconds of each function, timed in turns."""
    started = time.perf_counter()
    seconds: list[list[float]] = [[] for _ in runs]
    for done in range(_MOST_ROUNDS):
        if done >= _LEAST_ROUNDS and time.perf_counter() - started > _ENOUGH_SECONDS:
            break
        for run, taken in zip(runs, seconds, strict=True):
            begun = time.perf_counter()
            _wait(run())
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken) for taken in seconds]


def _wait(values: Any) -> None:
    """Waits for the device: reading one number of the result needs the computation."""
    float(tf.reduce_sum(tf.cast(tf.nest.flatten(values)[-1][..., :1], tf.float32)))


AUTO, WHOLE, HALF = "auto", "float32", "mixed_bfloat16"

GAIN = 1.1
"""The least speedup for which the 8 bits of bfloat16's fractions are worth it."""

MOST_EXAMPLES = 64
"""Of a timed step: more take longer, and the ratio stays."""

_CPU_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")
"""Flags of Linux for processors with dot products of bfloat16: Intel, AMD and Intel, Arm."""

_COMPUTE_CAPABILITY = (8, 0)
"""The first GPUs with matrix products of bfloat16 (NVIDIA A100 whitepaper, 2020)."""

_CPUINFO = pathlib.Path("/proc/cpuinfo")


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
    native, words = native_bfloat16(device)
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
    whole, half = pass_seconds(
        models, examples=examples, device=device, jit=parallel.jit, remat=parallel.remat
    )
    return whole, half


def native_bfloat16(device: str, cpuinfo: pathlib.Path = _CPUINFO) -> tuple[bool, str]:
    """Whether a device, such as ``CPU:0`` or ``GPU:1``, has bfloat16; and what it has, in words."""
    if device.startswith("TPU"):
        return True, "a TPU"
    return _of_gpu(int(device.partition(":")[2])) if device.startswith("GPU") else _of_cpu(cpuinfo)


def _of_cpu(cpuinfo: pathlib.Path) -> tuple[bool, str]:
    try:
        text = cpuinfo.read_text()
    except OSError:
        return False, f"a processor without {cpuinfo}"
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = found[1].split() if found else []
    known = [flag for flag in _CPU_FLAGS if flag in flags]
    if known:
        return True, f"a processor with {' and '.join(known)}"
    return False, f"a processor without {', '.join(_CPU_FLAGS)}"


def _of_gpu(index: int) -> tuple[bool, str]:
    # A device's number counts the GPUs that this process shows to TensorFlow.
    gpus = tf.config.get_visible_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[index]) if index < len(gpus) else {}
    capability = tuple(details.get("compute_capability", ()))
    if not capability:
        return False, "a GPU without a compute capability"
    return (
        capability >= _COMPUTE_CAPABILITY,
        f"a GPU of compute capability {capability[0]}.{capability[1]}",
    )
