"""Layers of the built-in models, and an initializer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from stagecraft.trainer_module.models.layers.adapting import Adapting


@keras.saving.register_keras_serializable("stagecraft")
class PartialIdentity(keras.initializers.Initializer):
    """Kernels ``[height, width, in, out]``: output i is input i, as long as there are inputs.

    Further outputs have random kernels, uniform within ``1 / sqrt(fan in)``. If there are fewer
    outputs than inputs, each of them is an input. Zagoruyko and Komodakis 2017, "DiracNets".
    """

    def __init__(self, seed: int | None = None) -> None:
        self._uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform", seed)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        """A kernel; the middle of an even height or width is after its half."""
        height, width, inputs, outputs = shape
        same = min(inputs, outputs)
        mask = np.arange(outputs) >= same
        identity = np.zeros(shape)
        identity[height // 2, width // 2, range(same), range(same)] = 1
        random = self._uniform(shape, dtype)
        return random * keras.ops.cast(mask, random.dtype) + keras.ops.cast(identity, random.dtype)

    def get_config(self) -> dict[str, Any]:
        """The configuration from which Keras makes a copy."""
        return {"seed": self._uniform.get_config()["seed"]}


@keras.saving.register_keras_serializable("stagecraft")
class Shortcut(layers.Layer):
    """The shortcut without weights (option A): every ``strides``-th pixel, new channels zero."""

    def __init__(self, filters: int, strides: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def call(self, inputs: Any) -> Any:
        """``[batch, height, width, channels]`` to ``[batch, h, w, filters]``."""
        inputs = inputs[:, :: self.strides, :: self.strides, :]
        new = self.filters - inputs.shape[-1]
        return keras.ops.pad(inputs, [(0, 0), (0, 0), (0, 0), (new // 2, new - new // 2)])

    def get_config(self) -> dict[str, Any]:
        """The configuration from which Keras makes a copy of this layer."""
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}


@keras.saving.register_keras_serializable("stagecraft")
class TiedEmbedding(layers.Layer):
    """Embeds tokens, and with ``reverse`` gives logits by the same weights.

    Press and Wolf 2017, "Using the output embedding to improve language models".
    """

    def __init__(self, vocabulary_size: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size, self.width = vocabulary_size, width

    def build(self, input_shape: Any) -> None:
        """Makes the weights: ``[vocabulary_size, width]``."""
        self.embeddings = self.add_weight(
            shape=(self.vocabulary_size, self.width),
            initializer=keras.initializers.RandomNormal(stddev=self.width**-0.5),
            name="embeddings",
        )
        self.built = True

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        """Integers ``[...]`` to ``[..., width]``; reversed, floats ``[..., width]`` to logits."""
        if reverse:
            return ops.matmul(inputs, ops.transpose(ops.convert_to_tensor(self.embeddings)))
        return ops.take(ops.convert_to_tensor(self.embeddings), inputs, axis=0)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> Any:
        """``[..., vocabulary_size]`` or ``[..., width]``, of the compute dtype."""
        before = inputs.shape[:-1] if reverse else inputs.shape
        last = self.vocabulary_size if reverse else self.width
        return keras.KerasTensor((*before, last), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The configuration from which Keras makes a copy of this layer."""
        config = {"vocabulary_size": self.vocabulary_size, "width": self.width}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable("stagecraft")
class Positions(layers.Layer):
    """Adds a learned vector for each position to ``[batch, length, width]``."""

    def build(self, input_shape: Any) -> None:
        """Makes the weights: ``[length, width]``."""
        self.positions = self.add_weight(
            shape=tuple(input_shape[1:]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="positions",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """The sum."""
        return inputs + self.positions


EPSILON = 5e-4
"""Added to the eigenvalues: directions with less variance than that are not scaled up further."""


@keras.saving.register_keras_serializable("stagecraft")
class Whitening(Adapting):
    """``size`` by ``size`` patches of an image, uncorrelated and with variance 1; and a bias.

    The outputs are the projections of a patch on the eigenvectors of the covariance of patches,
    those of the largest eigenvalues first, divided by the square roots of the eigenvalues; then the
    same with the other sign, which a following activation function treats differently. Training
    does not change the kernel. Before :meth:`adapt`, it is that of uncorrelated patches.

    Page 2019, "How to train your ResNet 8: Bag of tricks", has introduced it; Jordan 2024, "94% on
    CIFAR-10", section 3.2, describes it.
    """

    def __init__(self, size: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size

    def build(self, input_shape: Any) -> None:
        """Makes kernel ``[size, size, channels, filters]``, and bias; 2 size² channels filters."""
        patch = self.size**2 * input_shape[-1]
        self.kernel = self.add_weight(
            shape=(self.size, self.size, input_shape[-1], 2 * patch),
            initializer=lambda shape, dtype: keras.ops.cast(_white(shape), dtype),
            trainable=False,
            name="kernel",
        )
        self.bias = self.add_weight(shape=(2 * patch,), initializer="zeros", name="bias")
        self.built = True

    @property
    def adapted(self) -> bool:
        """Whether the kernel is another than that of a new layer."""
        white = _white(tuple(self.kernel.shape)).astype(self.kernel.dtype)
        return not np.array_equal(self.kernel.numpy(), white)

    def adapt(self, data: np.ndarray) -> None:
        """Sets the kernel for images ``[examples, height, width, channels]``."""
        self.kernel.assign(kernel(covariance(data, self.size), self.kernel.shape))

    def call(self, inputs: Any) -> Any:
        """``[batch, h, w, channels]`` to ``[batch, h - size + 1, w - size + 1, filters]``."""
        whitened = keras.ops.conv(inputs, self.kernel, padding="valid")
        return keras.ops.add(whitened, self.bias)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the result."""
        sides = [side and side - self.size + 1 for side in input_shape[1:3]]
        return (input_shape[0], *sides, 2 * self.size**2 * input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """The configuration from which Keras makes a copy of this layer."""
        return {**super().get_config(), "size": self.size}


def covariance(images: np.ndarray, size: int) -> np.ndarray:
    """Mean products of the values of a patch: float64 ``[n, n]`` for ``n = size² channels``.

    Not centred: Transform has given each channel the mean 0. Values of a patch are in the order of
    height, width and channels.
    """
    images = np.asarray(images, np.float64)
    height, width = (side - size + 1 for side in images.shape[1:3])
    views = [
        images[:, top : top + height, left : left + width]
        for top in range(size)
        for left in range(size)
    ]
    patches = np.concatenate(views, axis=-1).reshape(-1, size**2 * images.shape[-1])
    products: np.ndarray = patches.T @ patches / len(patches)
    return products


def kernel(products: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The kernel of ``shape`` for a :func:`covariance`.

    Eigenvectors have no sign; here the entry of an eigenvector with the largest absolute value is
    positive, so that every process has the same order of filters.
    """
    values, vectors = np.linalg.eigh(products)  # ascending; vectors are columns
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.abs(vectors).round(12).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, range(len(values))])
    scaled = vectors / np.sqrt(np.maximum(values, 0) + EPSILON)
    return np.concatenate([scaled, -scaled], axis=1).reshape(shape)


def _white(shape: tuple[int, ...]) -> np.ndarray:
    """The kernel for uncorrelated values."""
    return kernel(np.eye(shape[-1] // 2), shape)
