import functools
import json
import pathlib
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from model_arguments import classes

from stagecraft.trainer_module import registries
from stagecraft.trainer_module.checkpointing.checkpoints import Checkpoints
from stagecraft.trainer_module.models.assemble import assemble
from stagecraft.trainer_module.models.initial_weights.loading import (
    Loaded,
    MismatchError,
    UnusedSkipError,
)
from stagecraft.trainer_module.models.initial_weights.source import (
    VARIABLE_PATHS,
    InitialWeightsError,
)
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.training.export import export

CLASSES = 10
MODELS = """
import keras
from keras import layers

def net(input_shape, num_classes, width=4, head="head", more=False):
    images = keras.Input(input_shape)
    hidden = layers.Conv2D(width, 3, strides=4)(images)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    hidden = layers.Dropout(0.1)(layers.ReLU()(hidden))
    inner = keras.Sequential([keras.Input([8, 8, width]), layers.Conv2D(width, 1)], name="inner")
    hidden = layers.GlobalAveragePooling2D()(inner(hidden))
    if more:
        hidden = layers.Dense(width, name="extra")(hidden)
    return keras.Model(images, layers.Dense(num_classes, name=head)(hidden))

def wide(input_shape, num_classes):
    return net(input_shape, num_classes, width=6)

def hundred(input_shape, num_classes):
    return net(input_shape, 100)

def deeper(input_shape, num_classes):
    return net(input_shape, num_classes, more=True)

def renamed(input_shape, num_classes):
    return net(input_shape, num_classes, head="top")

def two(names, input_shape, num_classes):
    hidden = images = keras.Input(input_shape)
    hidden = layers.GlobalAveragePooling2D()(hidden)
    for name in names:
        hidden = layers.Dense(3, name=name)(hidden)
    return keras.Model(images, layers.Dense(num_classes, name="head")(hidden))

def ab(input_shape, num_classes):
    return two("ab", input_shape, num_classes)

def ba(input_shape, num_classes):
    return two("ba", input_shape, num_classes)

def noisy(input_shape, num_classes, noise=True):
    hidden = images = keras.Input(input_shape)
    if noise:
        hidden = layers.RandomFlip()(layers.GaussianNoise(0.1)(hidden))
        hidden = layers.RandomContrast(0.1)(hidden)
    hidden = layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(images, layers.Dense(num_classes, name="head")(hidden))

def quiet(input_shape, num_classes):
    return noisy(input_shape, num_classes, noise=False)

class Own(layers.Dense):
    def save_own_variables(self, store):
        store["halved"] = self.kernel.numpy() / 2

def own(input_shape, num_classes):
    last = Own(num_classes, name="own")
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), last])

class Sub(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes
        self.blocks = [layers.Conv2D(3, 3, strides=4) for _ in range(2)]
        self.head = layers.Dense(classes)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def get_config(self):
        return {"classes": self.classes}

    def call(self, images):
        for block in self.blocks:
            images = block(images)
        return self.head(keras.ops.mean(images, (1, 2))) * self.scale

def sub(input_shape, num_classes):
    return Sub(num_classes)
"""


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "weighty_models.py").write_text(MODELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def _settings(model: str = "net", **more: Any) -> TrainSettings:
    return TrainSettings(model=f"weighty_models:{model}", **more)


def _trained(model: str = "net") -> keras.Model:
    """A model with weights that no seed gives."""
    built = assemble(_settings(model), classes(CLASSES))
    draw = np.random.RandomState(1)
    for variable in built.weights:
        variable.assign(draw.uniform(0.1, 0.9, variable.shape))
    return built


def _values(model: keras.Model) -> dict[str, np.ndarray]:
    return {variable.path: np.asarray(variable.numpy()) for variable in model.weights}


def _keras(model: keras.Model, folder: pathlib.Path, data: Any) -> pathlib.Path:
    # With slots and metrics in the file.
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=True)
    model.train_on_batch(np.zeros((2, 32, 32, 3)), np.zeros((2, CLASSES)))
    model.save(folder / "m.keras")
    return folder / "m.keras"


def _weights_h5(model: keras.Model, folder: pathlib.Path, data: Any) -> pathlib.Path:
    model.save_weights(folder / "m.weights.h5")
    return folder / "m.weights.h5"


def _checkpoint(model: keras.Model, folder: pathlib.Path, data: Any) -> pathlib.Path:
    state = {f"model/{variable.path}": variable.numpy() for variable in model.variables}
    state |= {"step": np.int64(7), "optimizer/m/norm/gamma": np.zeros(3)}
    with Checkpoints(folder / "checkpoints") as checkpoints:
        checkpoints.save(7, state, {"settings": {}}, 7)
    return folder / "checkpoints" / "7"


def _saved_model(model: keras.Model, folder: pathlib.Path, data: Any) -> pathlib.Path:
    values = {variable.path: variable.numpy() for variable in model.variables}
    transform = tft.TFTransformOutput(str(data.transform_graph))
    schema = folder / "schema.pbtxt"
    schema.write_text(
        f'feature {{ name: "label" type: INT int_domain {{ min: 0 max: {CLASSES - 1} }} }}'
    )
    export(
        folder / "17",
        model,
        values,
        transform,
        registries.TASKS.get("image_classification"),
        str(schema),
    )
    return folder / "17"


KINDS = [_keras, _weights_h5, _checkpoint, _saved_model]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, training_data: Any) -> Callable[..., Any]:
    """How, and a model's name -> the trained model, and where it was saved; only read there."""

    @functools.cache
    def of(save: Any, model: str = "net") -> tuple[keras.Model, pathlib.Path]:
        donor = _trained(model)
        return donor, save(donor, tmp_path_factory.mktemp("saved"), training_data)

    return of


@pytest.mark.parametrize("save", KINDS)
@pytest.mark.parametrize("model", ["net", "sub"])
def test_all_weights_are_loaded(save, model, saved):
    donor, path = saved(save, model)
    told: list[Loaded] = []
    settings = _settings(model, initial_weights=str(path), seed=5)
    found = _values(assemble(settings, classes(CLASSES), on_loaded=told.append))
    assert found.keys() == _values(donor).keys()
    for name, value in _values(donor).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert told == [Loaded(str(path), len(found), len(found))]


@pytest.mark.parametrize("save", KINDS)
def test_what_does_not_match_is_listed_or_skipped(save, saved):
    _, path = saved(save)
    whole = {"initial_weights": str(path)}
    donor = _values(assemble(_settings(**whole), classes(CLASSES)))

    with pytest.raises(MismatchError) as caught:
        assemble(_settings("deeper", **whole), classes(CLASSES))
    assert caught.value.path == str(path)
    assert caught.value.missing == ("extra/bias", "extra/kernel")
    assert caught.value.unknown == caught.value.shapes == ()

    with pytest.raises(MismatchError) as caught:
        assemble(_settings("renamed", **whole), classes(CLASSES))
    assert caught.value.missing == ("top/bias", "top/kernel")
    assert len(caught.value.unknown) == 2
    assert all("head" in name for name in caught.value.unknown)

    with pytest.raises(MismatchError) as caught:
        assemble(_settings("hundred", **whole), classes(100))
    assert caught.value.missing == caught.value.unknown == ()
    assert caught.value.shapes == (("head/bias", (10,), (100,)), ("head/kernel", (4, 10), (4, 100)))

    fresh = _values(assemble(_settings("hundred", seed=3), classes(100)))
    skip = {"initial_weights_skip": "head, */gamma"}
    for name, value in _values(
        assemble(_settings("hundred", seed=3, **skip, **whole), classes(100))
    ).items():
        skipped = name.startswith("head/") or name.endswith("/gamma")
        np.testing.assert_array_equal(value, (fresh if skipped else donor)[name], err_msg=name)
    # What the file has besides is named as it is called there.
    skip = {"initial_weights_skip": "top,*head*"}
    renamed = assemble(_settings("renamed", **skip, **whole), classes(CLASSES))
    np.testing.assert_array_equal(_values(renamed)["norm/beta"], donor["norm/beta"])


def test_layers_of_equal_shapes_go_by_name(tmp_path):
    donor = _trained("ab")
    donor.save_weights(tmp_path / "m.weights.h5")
    whole = {"initial_weights": str(tmp_path / "m.weights.h5")}
    found = _values(assemble(_settings("ba", **whole), classes(CLASSES)))
    for name, value in _values(donor).items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_skip_that_skips_nothing_or_all_is_refused(tmp_path):
    path = _weights_h5(_trained(), tmp_path, None)
    for skip, patterns in (("haed", ("haed",)), ("hea", ("hea",)), ("*", ("*",))):
        settings = _settings(initial_weights=str(path), initial_weights_skip=skip)
        with pytest.raises(UnusedSkipError) as caught:
            assemble(settings, classes(CLASSES))
        assert caught.value.patterns == patterns


def test_a_layer_that_stores_in_its_own_way_is_refused(tmp_path):
    path = _weights_h5(_trained("own"), tmp_path, None)
    with pytest.raises(InitialWeightsError) as caught:
        assemble(_settings("own", initial_weights=str(path)), classes(CLASSES))
    assert caught.value.setting == "train.initial_weights"


def test_averages_take_their_weights_places(tmp_path):
    model = _trained()
    state = {f"model/{variable.path}": variable.numpy() for variable in model.variables}
    state["ema/head/bias"] = np.full(CLASSES, 0.25, np.float32)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, state, {"settings": {}}, 3)
    found = _values(assemble(_settings(initial_weights=str(tmp_path / "3")), classes(CLASSES)))
    assert set(found["head/bias"]) == {0.25}
    np.testing.assert_array_equal(found["head/kernel"], _values(model)["head/kernel"])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, b"text"])
def test_values_that_are_no_finite_numbers_are_refused(tmp_path, value):
    path = _weights_h5(_trained(), tmp_path, None)
    with h5py.File(path, "r+") as file:
        del file["layers/dense/vars/1"]
        file["layers/dense/vars/1"] = [value] * CLASSES
    with pytest.raises(InitialWeightsError) as caught:
        assemble(_settings(initial_weights=str(path)), classes(CLASSES))
    assert caught.value.setting == "train.initial_weights"


def test_random_layers_store_what_is_no_weight(tmp_path):
    path = _weights_h5(_trained("noisy"), tmp_path, None)
    whole = {"initial_weights": str(path)}
    found = _values(assemble(_settings("noisy", **whole), classes(CLASSES)))
    np.testing.assert_array_equal(found["head/kernel"], _values(_trained("noisy"))["head/kernel"])
    quiet = _values(assemble(_settings("quiet", **whole), classes(CLASSES)))
    np.testing.assert_array_equal(quiet["head/kernel"], found["head/kernel"])


def test_float64_takes_them_too(tmp_path):
    donor = _trained()
    path = _weights_h5(donor, tmp_path, None)
    model = assemble(_settings(initial_weights=str(path)), classes(CLASSES), precision="float64")
    assert {variable.dtype for variable in model.weights} == {"float64"}
    np.testing.assert_array_equal(_values(model)["head/kernel"], _values(donor)["head/kernel"])


def _cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def _garbage(path: pathlib.Path) -> None:
    path.write_bytes(b"no such thing")


@pytest.mark.parametrize("damage", [_cut, _garbage])
@pytest.mark.parametrize(
    ("save", "file"),
    [
        (_keras, "m.keras"),
        (_weights_h5, "m.weights.h5"),
        (_checkpoint, "checkpoints/7/state.data-00000-of-00001"),
        (_checkpoint, "checkpoints/7/progress.json"),
        (_saved_model, "17/variables/variables.index"),
        (_saved_model, f"17/{VARIABLE_PATHS}"),
    ],
)
def test_damage_is_one_sentence(save, file, damage, tmp_path, saved):
    _, path = saved(save)
    folder = next(parent for parent in path.parents if (parent / file).exists())
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / path.relative_to(folder)
    damage(tmp_path / file)
    with pytest.raises(InitialWeightsError) as caught:
        assemble(_settings(initial_weights=str(path)), classes(CLASSES))
    assert caught.value.path.startswith(str(path))
    assert "\n" not in str(caught.value)


def test_an_exported_model_without_paths_is_refused(tmp_path, training_data):
    path = _saved_model(_trained(), tmp_path, training_data)
    paths = path / VARIABLE_PATHS
    assert "head/kernel" in json.loads(paths.read_text())
    paths.unlink()
    with pytest.raises(InitialWeightsError, match=r"assets\.extra/variable_paths\.json"):
        assemble(_settings(initial_weights=str(path)), classes(CLASSES))


def test_a_keras_file_of_another_time_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(InitialWeightsError) as caught:
        assemble(_settings(initial_weights=str(tmp_path / "m.keras")), classes(CLASSES))
    assert caught.value.setting == "train.initial_weights"


HUGE = (1 << 20, 1 << 11)  # of float32: 8 GiB


def _grow(item: h5py.Dataset) -> None:
    group, name = item.parent, item.name.rpartition("/")[2]
    del group[name]
    group.create_dataset(name, shape=HUGE, dtype="float32", chunks=(1, 1))


def _add(item: h5py.Dataset) -> None:
    item.parent.create_dataset("more", shape=HUGE, dtype="float32")


def _claim(item: h5py.Dataset) -> None:
    group, name, shape = item.parent, item.name.rpartition("/")[2], item.shape
    del group[name]
    group.create_dataset(name, shape=shape, dtype="float32")  # allocated when it is written


def _compress(item: h5py.Dataset) -> None:
    group, name, value = item.parent, item.name.rpartition("/")[2], np.asarray(item)
    del group[name]
    group.create_dataset(name, data=value, compression="gzip")


@pytest.mark.parametrize("damage", [_grow, _add, _claim, _compress])
def test_a_small_file_of_a_large_array_takes_no_memory(damage, tmp_path):
    path = _weights_h5(_trained(), tmp_path, None)
    with h5py.File(path, "r+") as file:
        damage(file["layers/dense/vars/0"])
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(InitialWeightsError) as caught:
            assemble(_settings(initial_weights=str(path)), classes(CLASSES))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**26
    assert caught.value.path == str(path)


def test_a_keras_file_that_grows_is_refused(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.weights.h5", bytes(2**28))
    tracemalloc.start()
    try:
        with pytest.raises(InitialWeightsError) as caught:
            assemble(_settings(initial_weights=str(path)), classes(CLASSES))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**26 and caught.value.path == str(path)


def test_a_file_that_leads_to_another_is_refused(tmp_path):
    path = _weights_h5(_trained(), tmp_path, None)
    (tmp_path / "elsewhere").write_bytes(bytes(40))
    with h5py.File(path, "r+") as file:
        del file["layers/dense/vars/1"]
        away = [(str(tmp_path / "elsewhere"), 0, 40)]
        file["layers/dense/vars"].create_dataset("1", (10,), np.float32, external=away)
    with pytest.raises(InitialWeightsError, match="another file"):
        assemble(_settings(initial_weights=str(path)), classes(CLASSES))


@pytest.mark.parametrize("scope", ["mirrored", "cpu"])
def test_every_copy_begins_with_them(tmp_path, scope):
    donor = _trained()
    path = _weights_h5(donor, tmp_path, None)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(2)])
    within = strategy.scope() if scope == "mirrored" else tf.device("CPU:0")
    model = assemble(_settings(initial_weights=str(path)), classes(CLASSES), within)
    for variable in model.weights:
        copies = getattr(variable.value, "values", [variable.value])
        assert len(copies) == (2 if scope == "mirrored" else 1)
        for copy in copies:
            np.testing.assert_array_equal(copy.numpy(), _values(donor)[variable.path])
