"""Small networks that learn fast (Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU").

arXiv 2404.00498; upstream: ``legacy/airbench94.py`` in github.com/KellerJordan/cifar10-airbench.
"""

from __future__ import annotations

from typing import Any

from stagecraft.common.errors import SettingError
from stagecraft.trainer_module.models import family

POOLS = 3
SMALLEST = 2**POOLS + 1
"""Side of the smallest picture: whitening takes one pixel, and each group halves the rest."""

SCALE = 1 / 9
"""On the logits; with the initial weights, it keeps the first losses close to those of a guess."""


class Airbench(family.ModelFamily):
    """A whitening convolution, three groups of two convolutions, and a dense layer.

    A group is convolution, pooling, normalisation, GELU, convolution, normalisation, GELU. There is
    no shortcut: convolutions begin as the identity. airbench_64_256_256 has 1.97 million weights
    and is ``airbench94``; airbench_128_384_384 is the network of ``airbench95``. Unlike upstream,
    normalisations have an epsilon of 1e-5 instead of 1e-12, so that a channel without variance
    stays harmless.
    """

    name = "airbench"
    description = (
        "airbench_A_B_C, such as airbench_64_256_256: three groups with so many filters, which "
        "learn fast (Jordan 2024)"
    )
    pattern = r"airbench_(?P<first>\d+)_(?P<second>\d+)_(?P<third>\d+)"
    examples = ("airbench_64_256_256", "airbench_128_384_384")

    def problem(self, **sizes: int) -> str:
        """The problem with the number of filters; empty: none."""
        return "" if all(sizes.values()) else "has a group without filters"

    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """The network with the filters of the three groups.

        Raises:
            SettingError: the pictures are too small for three poolings.
        """
        import keras
        from keras import layers

        from stagecraft.trainer_module.models.layers.own_layers import Whitening

        widths = [sizes["first"], sizes["second"], sizes["third"]]
        name = f"airbench_{'_'.join(map(str, widths))}"
        if min(input_shape[:2]) < SMALLEST:
            height, width, _ = input_shape
            problem = (
                f"needs pictures of at least {SMALLEST} by {SMALLEST}, not {height} by {width}"
            )
            raise SettingError("train.model", name, problem, "cnn")
        images = keras.Input(input_shape, name="images")
        hidden = Whitening(dtype=_precise(), name="whitening")(images)
        hidden = layers.Activation("gelu", name="whitening_gelu")(hidden)
        for number, filters in enumerate(widths, start=1):
            hidden = _convolution(hidden, filters, f"group{number}_1")
            hidden = layers.MaxPooling2D(name=f"group{number}_pool")(hidden)
            hidden = _activated(hidden, f"group{number}_1")
            hidden = _convolution(hidden, filters, f"group{number}_2")
            hidden = _activated(hidden, f"group{number}_2")
        hidden = layers.GlobalMaxPooling2D(name="pool")(hidden)
        uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        head = layers.Dense(num_classes, use_bias=False, kernel_initializer=uniform, name="logits")
        return keras.Model(images, layers.Rescaling(SCALE, name="scale")(head(hidden)), name=name)


AIRBENCH = Airbench()


def _precise() -> str | None:
    """The dtype of the whitening: its kernel cancels most of a patch, which 16 bits would round."""
    import keras

    return "float32" if keras.config.dtype_policy().name.startswith("mixed") else None


def _convolution(inputs: Any, filters: int, name: str) -> Any:
    from keras import layers

    from stagecraft.trainer_module.models.layers.own_layers import PartialIdentity

    return layers.Conv2D(
        filters,
        3,
        padding="same",
        use_bias=False,
        kernel_initializer=PartialIdentity(),
        name=f"{name}_conv",
    )(inputs)


def _activated(inputs: Any, name: str) -> Any:
    """Normalisation with a bias and without a scale, whose statistics follow fast; and GELU."""
    from keras import layers

    norm = layers.BatchNormalization(momentum=0.6, epsilon=1e-5, scale=False, name=f"{name}_norm")(
        inputs
    )
    return layers.Activation("gelu", name=f"{name}_gelu")(norm)
