"""A training that was told to stop, and goes on, ends with the same bits as one that was not."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow_transform as tft

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.engines.training import Engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.parallel import topology
from stagecraft.trainer_module.settings import TrainingSettings
from stagecraft.trainer_module.training.loop import Loop, Preempted
from stagecraft.trainer_module.training.monitoring.progress import Reporter

STEPS, EXAMPLES, CLASSES = 6, 24, 4


class Training:
    """On one device, of `user_models:tiny`; batches of 10 end in the middle of an epoch of 24."""

    def __init__(self, data: Any, shuffle: str):
        self.settings = TrainingSettings.model_validate(
            {
                "train": {
                    "model": "user_models:tiny",
                    "batch_size": 10,
                    "steps": STEPS,
                    "momentum": 0.9,
                    "ema_decay": 0.5,
                    "shuffle": shuffle,
                    "shuffle_buffer": 5,
                }
            }
        )
        self._transform = tft.TFTransformOutput(str(data.transform_graph))
        self._data = data

    def engine(self) -> Engine:
        devices = topology.resolve(self.settings.parallel)
        strategy = connect(devices, self.settings.parallel)
        build = functools.partial(assemble, self.settings.train, CLASSES)
        return make_engine(strategy, devices, self.settings, STEPS, build)

    def dataset(self, first: int) -> Any:
        return input_data.train_dataset(
            self._data.files("train"), self._transform, self.settings.train, EXAMPLES, first
        )

    def run(
        self, folder: pathlib.Path, stop: Callable[[Engine], bool] = lambda _: False
    ) -> dict[str, bytes]:
        """The last checkpoint's arrays."""
        engine = self.engine()
        with (
            Reporter(str(folder / "logs")) as reporter,
            Checkpoints(folder / "checkpoints") as store,
        ):
            Loop(
                engine,
                store,
                reporter,
                total=STEPS,
                eval_every=STEPS,
                checkpoint_every=1,
                settings=self.settings.flat(),
                stop=lambda: stop(engine),
            ).run(self.dataset, None)
        return {name: value.tobytes() for name, value in store.load(STEPS).state.items()}


@pytest.mark.parametrize("shuffle", ["memory", "stream"])
def test_equal_bit_for_bit(training_data: Any, tmp_path: pathlib.Path, shuffle: str) -> None:
    training = Training(training_data, shuffle)
    undisturbed = training.run(tmp_path / "undisturbed")
    with pytest.raises(Preempted) as stopped:
        training.run(tmp_path / "stopped", stop=lambda engine: engine.step == 3)
    assert stopped.value.step == 3
    assert Checkpoints(tmp_path / "stopped" / "checkpoints").steps()[-1] == 3
    assert training.run(tmp_path / "stopped") == undisturbed
    assert {name.partition("/")[0] for name in undisturbed} == {"step", "model", "optimizer", "ema"}


def test_a_state_is_a_copy(training_data: Any) -> None:
    training = Training(training_data, "memory")
    engine = training.engine()
    batches = engine.feed(training.dataset(0))
    engine.train(batches, 1)
    state = engine.state()
    before = {name: value.tobytes() for name, value in state.items()}
    engine.train(batches, 2)
    assert {name: value.tobytes() for name, value in state.items()} == before
    after = engine.state()
    assert not np.array_equal(after["step"], state["step"])
    assert any(after[name].tobytes() != before[name] for name in before if name.startswith("ema/"))
