"""Mixture of experts: each shard has some of the experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.call import LayerCall, below
from stagecraft.trainer_module.tensor_parallel.parts import SlicesRule
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class ExpertsRule(SlicesRule):
    """Splits all weights ``[experts, …]`` (Lepikhin et al. 2020, "GShard", section 3.2).

    KerasHub computes all experts for all tokens ``[tokens, width]``, gives
    ``[experts, tokens, width]``, and weights them afterwards. So the router needs no shards.
    """

    name = "experts"
    description = "KerasHub's mixtures of experts: experts"
    layers = ("keras_hub:MixtralMoeExperts", "keras_hub:QwenMoeExperts")

    def obstacle(self, layer: Any, count: int) -> str:
        """Fewer experts than shards."""
        return f"has {layer.num_experts} experts" if layer.num_experts < count else ""

    def choose(self, call: LayerCall) -> Way:
        """By experts."""
        split = Split(0, even(call.layer.num_experts, call.group.count))
        return Way("experts", {below(call.layer, each): split for each in call.layer.weights})

    def outputs(self, call: LayerCall, way: Way, place: int, pieces: Sequence[tf.Tensor]) -> Any:
        """The outputs of all experts."""
        return call.group.join(pieces, axis=0)


EXPERTS = ExpertsRule()
