"""What a family of models is. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import abc
import re
from typing import Any, ClassVar

from stagecraft.schemas.errors import SettingError
from stagecraft.schemas.registry import Entry


class ModelFamily(Entry):
    """Base of the families in ``families/``, or of an entry point: models by name and size."""

    pattern: ClassVar[str]
    """Regular expression of a model's name; its groups are sizes: ``resnet(?P<depth>\\d+)``."""

    examples: ClassVar[tuple[str, ...]]
    """Names of some of its models, for suggestions."""

    def sizes(self, name: str) -> dict[str, int] | None:
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
    def build(self, input_shape: tuple[int, int, int], num_classes: int, **sizes: int) -> Any:
        """A new ``keras.Model`` of float32 images that gives logits ``[batch, num_classes]``.

        Its file imports Keras inside functions only.

        Args:
            input_shape: ``(height, width, channels)``.
            num_classes: number of logits.
            **sizes: as :meth:`sizes` gives them.
        """


def depth_problem(depth: int, beyond: int) -> str:
    """Why a residual network of three groups of blocks has no such depth; empty: it has."""
    blocks, rest = divmod(depth - beyond, 6)
    if rest or blocks < 1:
        return f"has a depth of {depth}, which is not 6n + {beyond} with n of 1 or more"
    return ""
