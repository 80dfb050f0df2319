"""An optimizer of Keras that updates each weight by an optimizer of the weight's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras


class PartOptimizer(keras.optimizers.Optimizer):
    """Updates each weight by its own optimizer, with one learning rate and one step count.

    Weight decay is that of this optimizer. The others only make slots and compute updates.
    """

    def __init__(
        self,
        make: Callable[[keras.Variable], keras.optimizers.Optimizer],
        learning_rate: Any,
        weight_decay: float | None,
        name: str = "parts",
        **base: Any,
    ):
        """``make``: a new optimizer for a weight; ``base``: arguments of Keras's base class."""
        super().__init__(learning_rate, weight_decay=weight_decay, name=name, **base)
        self._make = make

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the slots of all weights."""
        if self.built:
            return
        super().build(list(variables))
        self._own = []
        for variable in variables:
            own = self._make(variable)
            own._iterations = self._iterations
            begin = len(own.variables)
            own.build([variable])
            for slot in own.variables[begin:]:
                self._track_variable(slot)
            self._own.append(own)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates a weight."""
        own = self._own[self._get_variable_index(variable)]
        own.update_step(gradient, variable, learning_rate)
