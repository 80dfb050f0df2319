"""These tests need six logical CPUs, and so processes of their own: ``make test-devices``."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

collect_ignore_glob = [] if os.environ.get("STAGECRAFT_LOGICAL_CPUS") else ["test_*.py"]

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for `driving`, and `networks` by name


@pytest.fixture(scope="session", autouse=True)
def _six_logical_cpus() -> None:
    from stagecraft.trainer_module.parallel.topology import configure_devices
    from stagecraft.trainer_module.settings import ParallelSettings

    configure_devices(ParallelSettings(virtual_devices=6))


@pytest.fixture(scope="session", autouse=True)
def _functions_are_shared(_six_logical_cpus: None) -> Iterator[None]:
    """Small models share functions, as large ones do outside these tests."""
    from stagecraft.trainer_module.engines import replica_pipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_pipeline, "_LEAST_CALLS", 0)
        yield


@pytest.fixture
def in_float64() -> Iterator[None]:
    """Layers and losses compute in float64."""
    import keras

    from stagecraft import process_state

    with process_state.restored(), contextlib.ExitStack() as stack:
        stack.callback(keras.config.set_floatx, keras.config.floatx())
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        yield


@pytest.fixture(scope="session")
def grid() -> tuple[Any, list[Any]]:
    """An engine of replicas and stages, and the ops of its first step.

    Tracing its step takes longer than all steps: tests share it that train it a little further.
    """
    import driving

    from stagecraft.trainer_module.engines import placement_check

    train = {"optimizer": "adamw", "clip_norm": 1.0, "ema_decay": 0.9}
    engine = driving.make(driving.GRID, "norm", **train)
    engine._placement_checked.add(0)
    with placement_check.recording() as ops:
        engine.train(driving.feed(engine), 1)
    return engine, ops
