"""The base of rules for the layers of a kind: how shards divide their weights and their work.

Another package adds rules with entry points::

    [project.entry-points."stagecraft.shard_rules"]
    my_layer = "my_package.shards:MY_LAYER"
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from stagecraft.common.registry import Entry

if TYPE_CHECKING:
    from stagecraft.trainer_module.tensor_parallel.call import LayerCall
    from stagecraft.trainer_module.tensor_parallel.split import Way

ELEMENTWISE = frozenset(
    {
        *("celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu"),
        *("hard_swish", "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "mish", "relu"),
        *("relu6", "selu", "sigmoid", "silu", "soft_shrink", "softplus", "softsign"),
        *("sparse_plus", "squareplus", "swish", "tanh", "tanh_shrink", "threshold"),
    }
)
"""Activations of Keras that treat each entry by itself; ``softmax`` and ``glu`` do not."""


class ShardRule(Entry):
    """How the layers of one kind are divided. One file, one entry of the registry."""

    layers: tuple[str, ...]
    """Classes of the layers: names in ``keras.layers``, or ``package.module:Class``. The rule holds
    for a subclass that overrides neither ``call`` nor what ``call`` may use."""

    def obstacle(self, layer: Any, count: int) -> str:
        """Why a layer cannot be divided by ``count`` shards; empty: it can."""
        return ""

    @abc.abstractmethod
    def choose(self, call: LayerCall) -> Way | None:
        """How to divide a layer, from its first call; None: it stays whole in all calls."""

    @abc.abstractmethod
    def run(self, call: LayerCall, way: Way) -> Any:
        """The outputs of a call, as the layer would compute them."""


def channels_obstacle(layer: Any) -> str:
    """Why channels cannot be divided: they are not the last axis of a layer; empty: they are."""
    form = getattr(layer, "data_format", "channels_last")
    return "" if form == "channels_last" else f"has data_format={form!r}"


def adapted(layer: Any) -> str:
    """Why the weights of a layer are not those that it computes with; empty: they are."""
    if getattr(layer, "lora_enabled", False):
        return "has a LoRA adapter"
    return "is quantized" if getattr(layer, "quantization_mode", None) else ""


def is_elementwise(activation: Any) -> bool:
    """Whether an activation treats each entry by itself, as far as is known."""
    if activation is None:
        return True
    module = getattr(activation, "__module__", None) or ""
    name = getattr(activation, "__name__", "")
    return module.partition(".")[0] == "keras" and name in ELEMENTWISE
