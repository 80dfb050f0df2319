"""Engines of any topology of this process, all over the same batches."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from model_arguments import classes

from stagecraft.trainer_module.data.batch import Batch
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings, TrainSettings

BATCH, CLASSES, STEPS = 8, 4, 6

ONE: dict[str, Any] = {"strategy": "one_device"}
MIRRORED: dict[str, Any] = {"strategy": "mirrored", "replicas": 2}
STAGES: dict[str, Any] = {"strategy": "grid", "stages": 3, "microbatches": 2}
GRID: dict[str, Any] = {"strategy": "grid", "replicas": 2, "stages": 2, "microbatches": 2}

FAMILIES = ("airbench_4_6_8",)

State = Mapping[str, np.ndarray]


def rare(*values: Any) -> Any:
    """Parameters of a test that CI leaves out."""
    return pytest.param(*values, marks=pytest.mark.full)


def label(value: Any) -> str:
    """Parameters as they are shown: ``grid-2-2``."""
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def make(
    parallel: Mapping[str, Any],
    model: str = "plain",
    *,
    adapt_to: Callable[[], Any] | None = None,
    **train: Any,
) -> Engine:
    """An engine for a model of ``networks``, or for one of a family."""
    settings = TrainingSettings(
        train=TrainSettings(
            **{
                "model": model if model in FAMILIES or ":" in model else f"networks:{model}",
                "batch_size": BATCH,
                "learning_rate": 0.05,
                "schedule": "constant",
                **train,
            }
        ),
        parallel=ParallelSettings(**{"virtual_devices": 6, **parallel}),
    )
    return engine_of(settings, classes(CLASSES), adapt_to=adapt_to)


def engine_of(
    settings: TrainingSettings, arguments: Mapping[str, Any], steps: int = STEPS, **more: Any
) -> Engine:
    """An engine for the settings; ``arguments`` and ``more`` are those of :func:`assemble`."""
    parallel = settings.parallel
    devices = topology.resolve(parallel)
    build = functools.partial(
        assemble, settings.train, arguments, precision=parallel.precision, **more
    )
    return make_engine(connect(devices, parallel), devices, settings, steps, build)


def examples(count: int) -> Batch:
    draw = np.random.RandomState(count)
    labels = draw.randint(0, CLASSES, count).astype(np.int64)
    images = draw.randn(count, 32, 32, 3).astype(np.float32)
    images[np.arange(count), :, :, 0] += labels[:, None, None]
    return Batch(images, labels, np.ones(count, np.float32))


def dataset(
    batches: int = STEPS, *, start: int = 0, size: int = BATCH, spoilt: Mapping[int, float] = {}
) -> tf.data.Dataset:
    """Global batches from ``start`` on; in those of ``spoilt`` one pixel of the last example is
    the given value."""
    parts = examples(batches * size)
    for batch, value in spoilt.items():
        parts.inputs[(batch + 1) * size - 1, 5, 5, 1] = value
    return tf.data.Dataset.from_tensor_slices(parts).batch(size, True).skip(start)


def feed(engine: Engine, **kwargs: Any) -> Iterator[Any]:
    return engine.feed(dataset(**kwargs))


def gradients(engine: Engine, **kwargs: Any) -> tuple[float, dict[str, np.ndarray]]:
    return engine.gradients(next(feed(engine, **kwargs)))


def assert_same_gradients(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], units: int = 128
) -> None:
    """Equal but for the order of sums.

    A gradient is a sum of ``units`` products of which none is larger than the largest entry, or 1;
    each addition is off by at most half a unit in the last place of float32.
    """
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        bound = 2.0**-24 * units * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=bound, err_msg=name)


def assert_near(found: State, expected: State, atol: float) -> None:
    """Equal but for rounding."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.shape(found[name]) == np.shape(value), name
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)


def assert_same_bits(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name


def differing(found: State, expected: State) -> set[str]:
    """Names whose values are not the same bits."""
    assert found.keys() == expected.keys()
    return {name for name in found if found[name].tobytes() != expected[name].tobytes()}


def assert_no_drift(engine: Engine) -> None:
    first, *others = engine.replica_states()
    for other in others:
        assert_same_bits(other, first)
