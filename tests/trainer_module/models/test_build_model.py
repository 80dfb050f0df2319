import pathlib
import sys

import keras
import numpy as np
import pytest
from model_arguments import build, classes

from stagecraft.common.errors import SettingError, UserError

MODULE = """
import keras
from keras import layers

def functional(input_shape, num_classes):
    return keras.Sequential(
        [keras.Input(input_shape), layers.Flatten(), layers.Dense(num_classes)]
    )

class Subclassed(keras.Model):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.flatten, self.dense = layers.Flatten(), layers.Dense(num_classes)

    def call(self, inputs):
        return self.dense(self.flatten(inputs))

def stages(input_shape, num_classes):
    body = keras.Sequential([keras.Input(input_shape), layers.Conv2D(4, 3), layers.ReLU()])
    head = keras.Sequential([layers.GlobalAveragePooling2D(), layers.Dense(num_classes)])
    return body, head

def unchained(input_shape, num_classes):
    body = keras.Sequential([keras.Input(input_shape), layers.Flatten(), layers.Dense(4)])
    return [body, functional(input_shape, num_classes)]

def no_stages(input_shape, num_classes):
    return []

def softmax_activation(input_shape, num_classes):
    return keras.Sequential(
        [keras.Input(input_shape), layers.Flatten(), layers.Dense(num_classes, "softmax")]
    )

class SoftmaxInside(Subclassed):
    def call(self, inputs):
        return keras.ops.softmax(super().call(inputs))

def softmax_of_half_precision(input_shape, num_classes):
    policy = "mixed_bfloat16"
    dense = layers.Dense(num_classes, "softmax", bias_initializer="normal", dtype=policy)
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), dense])

def eleven(input_shape, num_classes):
    return functional(input_shape, num_classes + 1)

def two_outputs(input_shape, num_classes):
    images = keras.Input(input_shape)
    logits = layers.Dense(num_classes)(layers.Flatten()(images))
    return keras.Model(images, [logits, logits])

def small_images(input_shape, num_classes):
    return functional((8, 8, 3), num_classes)

def nothing(input_shape, num_classes):
    pass

def fails(input_shape, num_classes):
    raise ZeroDivisionError("no such\\nthing")

a_number = 3
"""


@pytest.fixture(scope="module", autouse=True)
def user_module(tmp_path_factory: pytest.TempPathFactory):
    """A package of a user's, importable as ``own.nets``."""
    folder = tmp_path_factory.mktemp("user")
    package = pathlib.Path(folder, "own")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "nets.py").write_text(MODULE)
    (package / "broken.py").write_text("import keras\nfrom keras import no_such_name\n")
    (package / "incomplete.py").write_text("import a_package_that_is_missing\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield
        for name in [name for name in sys.modules if name.split(".")[0] == "own"]:
            del sys.modules[name]


def _images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 32, 32, 3)).astype(np.float32)


@pytest.mark.parametrize("name", ["functional", "Subclassed"])
def test_a_users_model_is_returned_built(name):
    model = build(f"own.nets:{name}", classes(7))
    assert model.built
    assert len(model.trainable_variables) == 2
    assert model(_images()).shape == (5, 7)


def test_a_users_stages_are_returned_as_a_list():
    stages = build("own.nets:stages")
    assert isinstance(stages, list)
    body, head = stages
    assert head(body(_images())).shape == (5, 10)


def test_checking_a_model_leaves_its_weights_to_the_seed():
    from own import nets

    keras.utils.set_random_seed(5)
    checked = build("own.nets:Subclassed").get_weights()
    keras.utils.set_random_seed(5)
    model = nets.Subclassed((32, 32, 3), 10)
    model(_images())
    for one, other in zip(checked, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("rsenet20", "resnet20"),
        ("cnnn", "cnn"),
        ("perceptual", "package.module:function"),
        ("resnet21", "resnet20"),
        ("resnet2", "resnet20"),
        ("wide_resnet_17_4", "wide_resnet_16_4"),
        ("wide_resnet_16_0", "wide_resnet_16_4"),
        ("wide_resnet_16", "wide_resnet_16_4"),
        ("own/nets.py:functional", ":build"),
        ("own.nets:", ":build"),
    ],
)
def test_a_name_that_is_refused(name, suggestion):
    with pytest.raises(SettingError) as caught:
        build(name)
    assert (caught.value.setting, caught.value.value) == ("train.model", name)
    assert suggestion in caught.value.suggestion


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.missing:f", "ModuleNotFoundError: .*PYTHONPATH$"),
        ("missing.nets:f", "'missing'; .*PYTHONPATH$"),
        ("own.broken:f", "ImportError: .*no_such_name"),
        ("own.incomplete:f", "'a_package_that_is_missing'$"),
        ("own.nets:functionall", "functionall does not exist in .*nets.py; .*:functional$"),
        ("own.nets:a_number", "is of type int"),
        ("own.nets:fails", r"fails\(input_shape=\(32, 32, 3\).*ZeroDivisionError"),
        ("own.nets:nothing", "returned builtins.NoneType"),
        ("own.nets:no_stages", "returned builtins.list, not"),
        ("own.nets:eleven", r"returns \(3, 11\) .*\[batch, 10\]"),
        ("own.nets:two_outputs", r"returns list .*expected \[batch, 10\]"),
        ("own.nets:small_images", r"batch of shape \(3, 32, 32, 3\): "),
        ("own.nets:unchained", r"unchained, stage 1 .*shape \(3, 4\)"),
        ("own.nets:softmax_activation", "returns probabilities"),
        ("own.nets:SoftmaxInside", "return logits"),
        ("own.nets:softmax_of_half_precision", "return logits"),
    ],
)
def test_a_users_function_that_is_refused(name, message):
    with pytest.raises(UserError, match=message) as error:
        build(name)
    assert str(error.value).startswith("train.model: ")
    assert name in str(error.value)
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value)
