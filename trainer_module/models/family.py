"""The base of families of models. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import abc
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from stagecraft.common.errors import SettingError
from stagecraft.common.registry import Entry


class ModelFamily(Entry):
    """Base of the families in ``families/``, or of an entry point: models by name and size."""

    pattern: ClassVar[str]
    """Regular expression of a model's name; its groups are sizes: ``resnet(?P<depth>\\d+)``."""

    examples: ClassVar[tuple[str, ...]]
    """Names of some of its models, for suggestions."""

    def sizes(self, name: str) -> dict[str, Any] | None:
        """The sizes in a model's name; None: the name is of another family.

        Raises:
            SettingError: the family has no model of these sizes.
        """
        match = re.fullmatch(self.pattern, name)
        if not match:
            return None
        sizes = {size: int(digits) for size, digits in match.groupdict().items()}
        if problem := self.problem(**sizes):
            raise SettingError("train.model", name, problem, " or ".join(self.examples))
        return sizes

    def problem(self, **sizes: int) -> str:
        """Why there is no model of these sizes, a phrase with a verb; empty: there is one."""
        return ""

    @abc.abstractmethod
    def build(self, *args: Any, **arguments: Any) -> Any:
        """A new ``keras.Model``. Its file imports Keras inside functions only.

        Args:
            **arguments: those of the task, and sizes as :meth:`sizes` gives them. For pictures:
                ``input_shape`` (height, width, channels) and ``num_classes``; the model takes
                float32 images and gives logits ``[batch, num_classes]``.
        """

    def takes(self, arguments: Mapping[str, Any], sizes: Mapping[str, Any]) -> bool:
        """Whether :meth:`build` takes the arguments of a task."""
        try:
            inspect.signature(self.build).bind(**arguments, **sizes)
        except TypeError:
            return False
        return True


def depth_problem(depth: int, beyond: int) -> str:
    """Why a residual network of three groups of blocks has no such depth; empty: it has."""
    blocks, rest = divmod(depth - beyond, 6)
    if rest or blocks < 1:
        return f"has a depth of {depth}, which is not 6n + {beyond} with n of 1 or more"
    return ""


def convolution(inputs: Any, filters: int, size: int, strides: int, name: str) -> Any:
    """A convolution without bias, which a batch normalisation follows."""
    from keras import layers

    return layers.Conv2D(
        filters,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(inputs)


def normalisation(inputs: Any, name: str) -> Any:
    """Batch normalisation as in the papers on residual networks."""
    from keras import layers

    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_norm")(inputs)


def groups(hidden: Any, filters: Sequence[int], blocks: int, block: Callable[..., Any]) -> Any:
    """Groups of residual blocks; each group but the first halves height and width."""
    for group, width in enumerate(filters, start=1):
        for number in range(1, blocks + 1):
            strides = 2 if group > 1 and number == 1 else 1
            hidden = block(hidden, width, strides, f"group{group}_block{number}")
    return hidden


def classifier(hidden: Any, num_classes: int) -> Any:
    """Logits from the mean over all positions."""
    from keras import layers

    hidden = layers.GlobalAveragePooling2D(name="pool")(hidden)
    return layers.Dense(num_classes, kernel_initializer="he_normal", name="logits")(hidden)
