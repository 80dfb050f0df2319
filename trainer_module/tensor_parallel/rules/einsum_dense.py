"""EinsumDense: by the last axis of the output, or by the last axis of the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stagecraft.trainer_module.tensor_parallel.parts import LinearRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class EinsumDenseRule(LinearRule):
    """Splits ``kernel`` along the letter of the last axis of the output or input in its equation.

    In ``"abc,cd->abd"``, columns divide ``d``, and rows divide ``c``.
    """

    name = "einsum_dense"
    description = "EinsumDense: the last axis of the output, or of the input"
    layers = ("EinsumDense",)

    def obstacle(self, layer: Any, count: int) -> str:
        """Equations whose last axes do not come from the kernel alone."""
        rows, columns = self.features(layer)
        if not rows and not columns:
            return f"has the equation {layer.equation!r}, whose last axes cannot be divided"
        return super().obstacle(layer, count)

    def features(self, layer: Any) -> tuple[int, int]:
        """Lengths of both axes; 0: it cannot be divided."""
        given, kernel, output = letters(layer)
        shape = layer.kernel.shape
        summed = given[-1] in kernel and given[-1] not in output
        made = output[-1] in kernel and output[-1] not in given
        made = made and (layer.bias is None or _bias_axes(layer)[-1:] == output[-1])
        return (
            shape[kernel.index(given[-1])] if summed else 0,
            shape[kernel.index(output[-1])] if made else 0,
        )

    def columns(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By the last axis of the output."""
        _, kernel, output = letters(layer)
        axis = kernel.index(output[-1])
        sizes = even(layer.kernel.shape[axis], count)
        bias = len(layer.bias.shape) - 1 if layer.bias is not None else 0
        return {"kernel": Split(axis, sizes), "bias": Split(bias, sizes)}

    def rows(self, layer: Any, count: int) -> Mapping[str, Split]:
        """By the last axis of the input."""
        given, kernel, _ = letters(layer)
        axis = kernel.index(given[-1])
        return {"kernel": Split(axis, even(layer.kernel.shape[axis], count))}

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
