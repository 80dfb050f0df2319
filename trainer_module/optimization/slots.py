"""Makes an optimizer's slots, with names for checkpoints that depend on the weights alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import keras


def build(optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]) -> None:
    """Makes the slots for ``weights``; :func:`named` has their names from then on.

    Keras names most slots by their weight, and those of Adafactor's factors ``kernel`` or ``bias``.
    The latter are named here by the weight for which ``build`` makes them, and by a number.
    """
    watched = _Weights(optimizer, weights)
    optimizer.build(watched)
    counts: Counter[str] = Counter()
    names, owners = [], {}
    for slot in optimizer.variables:
        place = watched.owners.get(id(slot))
        owner = "" if place is None else weights[place].path.replace("/", "_")
        own = slot.path.partition("/")[2]
        if not own or not own.startswith(owner):
            counts[owner] += 1
            own = f"{owner or 'state'}_{counts[owner]}"
        names.append(f"optimizer/{own}")
        if place is not None:
            owners[names[-1]] = place
    optimizer.slot_names, optimizer.slot_owners = names, owners


def named(optimizer: keras.optimizers.Optimizer) -> list[tuple[str, keras.Variable]]:
    """Name in a checkpoint, and variable, of all variables of a built optimizer."""
    return list(zip(optimizer.slot_names, optimizer.variables, strict=True))


def shared(optimizer: keras.optimizers.Optimizer) -> frozenset[str]:
    """Names of the variables that belong to no weight, such as the step: equal on all stages."""
    return frozenset(optimizer.slot_names).difference(optimizer.slot_owners)


def owners(optimizer: keras.optimizers.Optimizer) -> Mapping[str, int]:
    """Name of each other variable -> the place of its weight."""
    found: Mapping[str, int] = optimizer.slot_owners
    return found


class _Weights(list[keras.Variable]):
    """Weights that see for which of them an optimizer makes a slot while it iterates over them."""

    def __init__(self, optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]):
        super().__init__(weights)
        self._optimizer = optimizer
        self.owners: dict[int, int] = {}
        """``id`` of a slot -> place of its weight."""

    def __iter__(self) -> Iterator[keras.Variable]:
        for place, weight in enumerate(super().__iter__()):
            begin = len(self._optimizer.variables)
            yield weight
            for slot in self._optimizer.variables[begin:]:
                self.owners[id(slot)] = place
