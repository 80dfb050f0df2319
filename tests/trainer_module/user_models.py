"""Models as a user writes them: `package.module:function`."""

import json
import os
import signal
from typing import Any

import keras


def tiny(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Everything that has a state: BatchNorm, dropout, weights."""
    images = keras.Input(input_shape)
    hidden = keras.layers.Conv2D(4, 3, strides=4)(images)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Dropout(0.2)(keras.layers.ReLU()(hidden))
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(images, keras.layers.Dense(num_classes)(hidden))


class Subclassed(keras.Model):
    """No `training` argument: Keras hands it to the layers that want it."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.flatten = keras.layers.Flatten()
        self.dropout = keras.layers.Dropout(0.5)
        self.head = keras.layers.Dense(num_classes)

    def call(self, images: Any) -> Any:
        return self.head(self.dropout(self.flatten(images)))


def subclassed(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    del input_shape
    return Subclassed(num_classes)


def stages(input_shape: tuple[int, ...], num_classes: int) -> list[keras.Model]:
    """Parts that are to be stages."""
    first = keras.Sequential(
        [keras.Input(input_shape), keras.layers.Conv2D(4, 3, strides=4, name="conv")]
    )
    return [first, keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(num_classes)])]


def same_names(input_shape: tuple[int, ...], num_classes: int) -> list[keras.Model]:
    """Two layers of one name: their variables have one path."""
    images, hidden = keras.Input(input_shape), keras.Input([8])
    flat = keras.layers.Flatten()(images)
    return [
        keras.Model(images, keras.layers.Dense(8, name="head")(flat)),
        keras.Model(hidden, keras.layers.Dense(num_classes, name="head")(hidden)),
    ]


def frozen(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Nothing in it is trained."""
    model = tiny(input_shape, num_classes)
    model.trainable = False
    return model


def diverging(input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Its logits are finite at first, and its gradients are not."""
    images = keras.Input(input_shape)
    hidden = keras.layers.GlobalAveragePooling2D()(images)
    logits = keras.layers.Dense(num_classes, kernel_initializer="zeros")(hidden)
    return keras.Model(images, keras.layers.Rescaling(1e30)(logits))


class Epochs:
    """A callback that writes the number of steps to a file."""

    def on_step(self, step, logs):
        self.steps = step

    def on_train_end(self, logs):
        with open("epochs.json", "w") as file:
            json.dump({"steps": self.steps}, file)


class Kill:
    """A callback that kills the process, as a machine does that is taken away."""

    def on_step(self, step, logs):
        if step >= 5:
            os.kill(os.getpid(), signal.SIGKILL)
