"""Add, Multiply and the like: divided inputs stay divided, if all are divided alike."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.call import LayerCall
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule
from stagecraft.trainer_module.tensor_parallel.split import Way


class MergingRule(ShardRule):
    """Calls the layer itself on the pieces of all inputs."""

    name = "merging"
    description = "Add, Subtract, Multiply, Average, Maximum, Minimum, if all inputs are divided"
    layers = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")

    def choose(self, call: LayerCall) -> Way:
        """Each piece by itself."""
        return Way("channels", {})

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the layer on the whole tensors, or on their pieces."""
        pieces = [call.group.pieces(each) for each in call.inputs]
        known = [each for each in pieces if each is not None]
        same = {tuple(tuple(part.shape) for part in each) for each in known}
        if len(known) < len(pieces) or len(same) > 1:
            return call.own(call.inputs)

        def run(_: int, *given: tf.Tensor) -> Any:
            return call.own(list(given))

        return call.group.join(call.group.map(run, *known))


MERGING = MergingRule()
