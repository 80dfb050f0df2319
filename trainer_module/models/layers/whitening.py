"""A first convolution that whitens patches (Jordan 2024, "94% on CIFAR-10", section 3.2).

It is by Page 2019, "How to train your ResNet 8: Bag of tricks".
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from stagecraft.trainer_module.models.layers.adapting import Adapting

EPSILON = 5e-4
"""Added to the eigenvalues: directions with less variance than that are not scaled up further."""


@keras.saving.register_keras_serializable("stagecraft")
class Whitening(Adapting):
    """``size`` by ``size`` patches of an image, uncorrelated and with variance 1; and a bias.

    The outputs are the projections of a patch on the eigenvectors of the covariance of patches,
    those of the largest eigenvalues first, divided by the square roots of the eigenvalues; then the
    same with the other sign, which a following activation function treats differently. Training
    does not change the kernel. Before :meth:`adapt`, it is that of uncorrelated patches.
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
        """What Keras makes a copy of this layer from."""
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
