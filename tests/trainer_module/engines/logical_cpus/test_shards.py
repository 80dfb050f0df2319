"""Shards against one device: all of a training's state, in float64."""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import driving
import networks
import numpy as np
import pytest
import sharded
import tensorflow as tf
from driving import ONE, assert_no_drift, assert_same_bits, rare
from tensorflow.python.eager import context

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.engines import placement_check

STEPS = 3

FLOAT64 = 1e-11
"""Sums over shards have another order: some hundred units of 2 ** -53 on values of about 1, which
the square root in Adam enlarges where a gradient is nearly 0."""

TRAIN: dict[str, Any] = {
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "clip_norm": 0.5,
    "ema_decay": 0.9,
    "label_smoothing": 0.1,
}

PARALLEL: dict[str, dict[str, Any]] = {
    "two": {"shards": 2},
    "three": {"shards": 3},
    "remat": {"shards": 2, "remat": True},
    "jit": {"shards": 2, "jit": True},
    "accumulate": {"shards": 2, "accumulate": 2},
    "stages": {"shards": 2, "stages": 2, "microbatches": 2},
    "virtual": {"shards": 2, "stages": 2, "virtual_stages": 2, "microbatches": 2},
    "replicas": {"shards": 2, "replicas": 2},
    "zero": {"shards": 2, "replicas": 2, "zero": 1},
}


@pytest.fixture(autouse=True)
def _sharded_models(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, build in sharded.NAMES.items():
        monkeypatch.setattr(networks, name, build, raising=False)
    monkeypatch.setattr(networks, "pair", sharded.pair, raising=False)


def make(parallel: dict[str, Any], model: str, **train: Any) -> Any:
    asked = {"strategy": "grid", "precision": "float64", **parallel}
    return driving.make(asked, model, **{**TRAIN, **train})


def trained(parallel: dict[str, Any], model: str, **train: Any) -> Any:
    engine = make(parallel, model, **train)
    engine.train(driving.feed(engine), STEPS)
    return engine


def assert_alike(found: Any, expected: Any) -> None:
    driving.assert_near(found, expected, FLOAT64)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("mlp", "two"),
        *(rare("mlp", name) for name in [*PARALLEL][1:]),
        *(rare("cnn", name) for name in ("two", "three", "remat", "jit")),
        *(rare("vit", name) for name in ("two", "three", "stages", "zero")),
        *(rare("head", name) for name in ("two", "three", "accumulate")),
    ],
)
def test_the_training_is_that_of_one_device(model, name):
    parallel = PARALLEL[name]
    # Batch statistics are those of a part of the batch.
    same_parts = parallel.get("accumulate", 1) * parallel.get("microbatches", 1)
    same_parts *= parallel.get("replicas", 1)
    reference = trained({**ONE, "accumulate": same_parts}, model)
    engine = trained(parallel, model)
    assert_alike(engine.state(), reference.state())
    assert_no_drift(engine)
    found, expected = (each.evaluate(driving.dataset(2)) for each in (engine, reference))
    assert found.loss == pytest.approx(expected.loss, abs=FLOAT64)
    assert found.values == expected.values
    assert engine.weights().keys() == reference.weights().keys()


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        rare("sgd", {"clip_value": 0.01}),
        rare("nadam", {"gradient_noise": 0.1}),
        rare("adam", {"weight_decay": 0, "frozen": ["up"]}),
        rare("lion", {"learning_rate_multipliers": {"down": 0.5}}),
    ],
)
def test_optimizers(optimizer, more):
    train = {"clip_norm": 0, "optimizer": optimizer, **more}
    expected, found = (trained(each, "mlp", **train) for each in (ONE, {"shards": 3}))
    assert_alike(found.state(), expected.state())


@pytest.mark.parametrize("precision", [rare("mixed_bfloat16"), rare("mixed_float16"), "float32"])
def test_precisions(precision):
    expected, found = (
        driving.gradients(make({**each, "precision": precision}, "mlp"))
        for each in (ONE, {"shards": 2})
    )
    assert found[1].keys() == expected[1].keys()
    bound = {"float32": 2.0**-20, "mixed_float16": 2.0**-9, "mixed_bfloat16": 2.0**-6}[precision]
    for name, value in expected[1].items():
        allowed = bound * max(1.0, float(np.abs(value).max()))
        np.testing.assert_allclose(found[1][name], value, rtol=0, atol=allowed, err_msg=name)


@pytest.mark.full
def test_a_checkpoint_does_not_depend_on_the_shards():
    first = trained({"shards": 2}, "vit")
    state = first.state()
    for parallel in (ONE, {"shards": 3}, {"shards": 2, "replicas": 2, "zero": 1}):
        other = make(parallel, "vit")
        other.restore(state)
        assert_same_bits(other.state(), state)
    snapshot = {name: np.asarray(value) for name, value in first.snapshot().items()}
    assert_same_bits(snapshot, state)


def test_all_ops_of_a_shard_are_on_its_device_and_a_pair_has_one_sum():
    engine = make({"shards": 3, "devices": "CPU:1,CPU:4,CPU:2"}, "pair", clip_norm=0)
    assert {path: way.name for path, way in engine.shards.ways().items()} == {
        "up": "columns",
        "down": "rows",
    }
    engine._placement_checked.add(0)
    sent: collections.Counter[tuple[str, str]] = collections.Counter()
    with _counting(sent), placement_check.recording() as ops:
        engine.train(driving.feed(engine), 1)
    for op in ops:
        if match := placement_check._STAGE_REPLICA.search(op.name):
            shard = int(match[3] or 0)
            assert op.device == ("CPU:1", "CPU:4", "CPU:2")[shard], op
    # Forward: the input to each other shard, and its part of the sum from there. Back: the same.
    shards = {"CPU:1", "CPU:4", "CPU:2"}
    between = {pair: count for pair, count in sent.items() if shards.issuperset(pair)}
    others = ("CPU:4", "CPU:2")
    expected = {("CPU:1", each): 2 for each in others} | {(each, "CPU:1"): 2 for each in others}
    assert between == expected


@contextlib.contextmanager
def _counting(sent: collections.Counter[tuple[str, str]]) -> Iterator[None]:
    """Counts the float64 tensors that go from device to device in functions first called here."""
    export = context.Context.export_run_metadata

    def exported(self: Any) -> Any:
        metadata = export(self)
        for functions in metadata.function_graphs:
            for node in (node for graph in functions.partition_graphs for node in graph.node):
                if node.op == "_Send" and node.attr["T"].type == tf.float64.as_datatype_enum:
                    ends = (node.attr[f"{end}_device"].s.decode() for end in ("send", "recv"))
                    begin, end = (each.rpartition("device:")[2] for each in ends)
                    sent[begin, end] += 1
        return metadata

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context.Context, "export_run_metadata", exported)
        yield


def test_weights_gradients_and_slots_of_a_large_layer_are_divided():
    engine = make(
        {"shards": 4, "precision": "float32"}, "pair", optimizer="adam", weight_decay=0, ema_decay=0
    )
    sizes = [
        sum(v.numpy().nbytes for v in (*each.weights, *each.optimizer.variables))
        for each in engine._grid[0]
    ]
    whole = sum(np.asarray(value).nbytes for value in engine.state().values())
    assert sizes == pytest.approx([whole / 4] * 4, rel=0.05)


@pytest.mark.parametrize(
    ("model", "parallel", "words"),
    [
        ("plain", {"shards": 2}, "finds no layer to divide"),
        ("recurrent", {"shards": 2}, "LSTM"),
    ],
)
def test_what_cannot_be_divided_is_refused(model, parallel, words, monkeypatch):
    monkeypatch.setattr(networks, "recurrent", _recurrent, raising=False)
    with pytest.raises(SettingError) as caught:
        make(parallel, model)
    assert caught.value.setting == "parallel.shards"
    assert words in str(caught.value)


def _recurrent(input_shape: tuple[int, ...], num_classes: int) -> Any:
    layers = sharded.layers
    return sharded.keras.Sequential(
        [
            sharded.keras.Input(input_shape),
            layers.Reshape((32, 96)),
            layers.LSTM(64, name="lstm"),
            layers.Dense(20, name="dense"),
            layers.Dense(num_classes, name="logits"),
        ]
    )
