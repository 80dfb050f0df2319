"""EinsumDense: by the last axis of the output, or by the last axis of the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.split import Way


class EinsumDenseRule(LinearRule):
    """Splits ``kernel`` along the letter of the last axis of the output or input in its equation.

    In ``"abc,cd->abd"``, columns divide ``d``, and rows divide ``c``.
    """

    name = "einsum_dense"
    description = "EinsumDense: the last axis of the output, or of the input"
    layers = ("EinsumDense",)

    def obstacle(self, layer: Any, count: int) -> str:
        """Equations whose last axes do not come from the kernel alone."""
        if self.axes(layer) == (None, None):
            return f"has the equation {layer.equation!r}, whose last axes cannot be divided"
        return super().obstacle(layer, count)

    def axes(self, layer: Any) -> tuple[int | None, int | None]:
        """The last axis of the input, and that of the output."""
        given, kernel, output = letters(layer)
        summed = given[-1] in kernel and given[-1] not in output
        made = output[-1] in kernel and output[-1] not in given
        made = made and (layer.bias is None or _bias_axes(layer)[-1:] == output[-1])
        return (
            kernel.index(given[-1]) if summed else None,
            kernel.index(output[-1]) if made else None,
        )

    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """The output shape of a shard."""
        *before, _ = layer.partial_output_shape
        return {"output_shape": (*before, way.splits["kernel"].sizes[shard])}

    def without_bias(self, layer: Any) -> Mapping[str, Any]:
        """A bias has axes."""
        return {"bias_axes": None}


def letters(layer: Any) -> tuple[str, str, str]:
    """The letters of the input, the kernel and the output, without an ellipsis."""
    left, _, output = layer.equation.replace("...", "").partition("->")
    given, _, kernel = left.partition(",")
    return given.strip(), kernel.strip(), output.strip()


def _bias_axes(layer: Any) -> str:
    """In the order of the output's letters, as the shape of the bias."""
    output = letters(layer)[2]
    return "".join(sorted(layer.bias_axes, key=output.index))


EINSUM_DENSE = EinsumDenseRule()
