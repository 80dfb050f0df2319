import functools
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from model_arguments import classes

from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.engines.engine import Engine
from stagecraft.trainer_module.engines.factory import connect, make_engine
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights import loading
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.run_fn import run_fn
from stagecraft.trainer_module.settings import TrainingSettings, TrainSettings
from stagecraft.trainer_module.training import record

CLASSES = 4
"""Of the test data."""

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "one_device": {},
    "mirrored": {"strategy": "mirrored", "replicas": 2, "virtual_devices": 2},
    "grid": {"strategy": "grid", "replicas": 1, "stages": 2, "virtual_devices": 2},
    "grid of replicas": {"strategy": "grid", "replicas": 2, "virtual_devices": 2},
    "float64": {"precision": "float64"},
}


@pytest.fixture
def weights(tmp_path: pathlib.Path) -> tuple[str, dict[str, np.ndarray]]:
    """A file, and what is in it."""
    model = assemble(TrainSettings(model="user_models:tiny"), classes(CLASSES))
    draw = np.random.RandomState(1)
    for variable in model.weights:
        variable.assign(draw.uniform(0.1, 0.9, variable.shape))
    path = tmp_path / "m.weights.h5"
    model.save_weights(path)
    return str(path), {variable.path: variable.numpy() for variable in model.weights}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_begins_with_them(name, weights):
    file, values = weights
    train = {"model": "user_models:tiny", "initial_weights": file, "ema_decay": 0.9, "steps": 4}
    settings = TrainingSettings.model_validate({"train": train, "parallel": TOPOLOGIES[name]})
    parallel = settings.parallel
    devices = Topology(
        strategy=parallel.strategy,
        devices=tuple(f"CPU:{n}" for n in range(parallel.replicas * parallel.stages)),
        stages=parallel.stages,
    )
    build = functools.partial(
        assemble, settings.train, classes(CLASSES), precision=parallel.precision
    )
    engine = make_engine(connect(devices, parallel), devices, settings, 4, build)
    for state in (engine.state(), *engine.replica_states()):
        for path, value in values.items():
            np.testing.assert_array_equal(state[f"model/{path}"], value)
        averages = {path: state[path] for path in state if path.startswith("ema/")}
        assert averages
        for path, average in averages.items():
            np.testing.assert_array_equal(average, values[path.removeprefix("ema/")])


@pytest.mark.slow
def test_a_training_reads_them_once_and_goes_on_from_its_checkpoint(
    make_fn_args, weights, tmp_path, monkeypatch
):
    file, values = weights
    overrides = {"train_initial_weights": file, "train_learning_rate": 1e-9}
    fn_args = make_fn_args(tmp_path / "first", **overrides)
    train, begun = Engine.train, []

    def watched(self: Engine, *given: Any) -> Any:
        begun.append(self.state())
        if self.step == 4:
            raise KeyboardInterrupt
        pathlib.Path(file).rename(tmp_path / "away.weights.h5")  # is not needed at the end
        try:
            return train(self, *given)
        finally:
            (tmp_path / "away.weights.h5").rename(file)

    monkeypatch.setattr(Engine, "train", watched)
    with pytest.raises(KeyboardInterrupt):
        run_fn(fn_args)
    for path, value in values.items():
        np.testing.assert_array_equal(begun[0][f"model/{path}"], value)

    monkeypatch.undo()
    begun.clear()
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2]))
    path = next(path for path in values if path.endswith("moving_mean"))
    kept = Checkpoints(fn_args.working_dir).load(4).state[f"model/{path}"]

    def gone(self: Engine, *given: Any) -> Any:
        begun.append(self.state())
        pathlib.Path(file).unlink(missing_ok=True)
        return train(self, *given)

    monkeypatch.setattr(Engine, "train", gone)
    run_fn(fn_args)
    np.testing.assert_array_equal(begun[0][f"model/{path}"], kept)
    assert not np.array_equal(kept, values[path])

    notes = record.read(fn_args.model_run_dir)
    assert notes["resumed_from"] == 4
    count = len(values)
    assert notes["initial_weights"] == {
        "file": file,
        "variables": count,
        "total": count,
        "compared": False,
        "carried": [],
        "rows": {},
        "rescaled": [],
    }
    exported = loading.of_saved_model(pathlib.Path(fn_args.serving_model_dir))
    kernel = next(path for path in values if path.endswith("kernel"))
    # Six steps of 1e-9 each, and of 6e-8 rounding, twice with the average.
    np.testing.assert_allclose(exported[kernel], values[kernel], atol=1e-6)
    assert json.dumps(notes)
