"""Makes an optimizer's slots, with names for checkpoints that depend on the weights alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import keras


def build(optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Makes the slots for ``weights``; :func:`named` has their names from then on.

    Keras names most slots by their weight, and those of Adafactor's factors ``kernel`` or ``bias``.
    The latter are named here by the weight for which ``build`` makes them, and by a number.
    """
    watched = _Weights(optimizer, weights)
    optimizer.build(watched)
    counts: Counter[str] = Counter()
    names, shared = [], set()
    for slot in optimizer.variables:
        owner = watched.owners.get(id(slot), "")
        own = slot.path.partition("/")[2]
        if not own or not own.startswith(owner):
            counts[owner] += 1
            own = f"{owner or 'state'}_{counts[owner]}"
        names.append(f"optimizer/{own}")
        if not owner:
            shared.add(names[-1])
    optimizer.slot_names, optimizer.shared_names = names, shared


def named(optimizer: keras.optimizers.Optimizer) -> list[tuple[str, keras.Variable]]:
    """Name in a checkpoint, and variable, of all variables of a built optimizer."""
    return list(zip(optimizer.slot_names, optimizer.variables, strict=True))


def shared(optimizer: keras.optimizers.Optimizer) -> frozenset[str]:
    """Names of the variables that belong to no weight, such as the step: equal on all stages."""
    return frozenset(optimizer.shared_names)


class _Weights(list[keras.Variable]):
    """Weights that see for which of them an optimizer makes a slot while it iterates over them."""

    def __init__(self, optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]):
        super().__init__(weights)
        self._optimizer = optimizer
        self.owners: dict[int, str] = {}
        """``id`` of a slot -> path of its weight, as Keras writes it into names."""

    def __iter__(self) -> Iterator[keras.Variable]:
        for weight in super().__iter__():
            begin = len(self._optimizer.variables)
            yield weight
            for slot in self._optimizer.variables[begin:]:
                self.owners[id(slot)] = weight.path.replace("/", "_")
