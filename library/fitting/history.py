"""The history that ``fit`` returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from stagecraft.common.text import columns
from stagecraft.trainer_module.parallel.topology import Topology


@dataclasses.dataclass(eq=False, repr=False)
class History:
    """The course of a training, as ``keras.callbacks.History`` has it."""

    history: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """``loss``, the metrics, and ``val_loss`` and so on: a number for each epoch."""
    epoch: list[int] = dataclasses.field(default_factory=list)
    """Numbers of the epochs, from 0; with those of the calls that this one resumed."""
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    """``epochs``, ``steps`` of an epoch, ``verbose``."""
    model: Any = None
    """The trained ``keras.Model``: the one that ``fit`` got, or the one that its function built."""
    topology: Topology | None = None
    """The devices of the process that trained; of the chief, if there were several. None: one."""

    @classmethod
    def of(
        cls, found: Any, model: Any, topology: Topology | None, earlier: Mapping[str, Any]
    ) -> History:
        """The history of Keras, after the epochs of earlier calls."""
        before = len(earlier.get("epoch", ())) - len(found.epoch)
        own = {name: [plain(each) for each in values] for name, values in found.history.items()}
        if before > 0:
            own = {**earlier["history"]}
        epochs = [*earlier.get("epoch", ())[: max(before, 0)], *found.epoch]
        return cls(own, epochs, dict(found.params or {}), model, topology)

    def plot(self) -> Any:
        """Curves of loss and metrics by epoch: a ``matplotlib.figure.Figure``."""
        from matplotlib.figure import Figure

        names = [name for name in self._scalars() if not name.startswith("val_")]
        figure = Figure(figsize=(4.5 * max(len(names), 1), 3.5), layout="constrained")
        for place, name in enumerate(names, start=1):
            axes = figure.add_subplot(1, len(names), place)
            for key, label in ((name, "training"), (f"val_{name}", "validation")):
                values = self.history.get(key, [])
                # Validations may be rarer than epochs; the last one follows the last epoch.
                every = max(1, round(len(self.epoch) / len(values))) if values else 1
                epochs = [each + 1 for each in self.epoch[every - 1 :: every]]
                if values:
                    axes.plot(epochs, values[: len(epochs)], marker=".", label=label)
            axes.set(title=name, xlabel="epoch")
            axes.legend()
        return figure

    def _scalars(self) -> dict[str, list[float]]:
        """Metrics of one number: some have one for each class."""
        return {
            name: values
            for name, values in self.history.items()
            if all(isinstance(each, float) for each in values)
        }

    def __repr__(self) -> str:
        return f"History of {len(self.epoch)} epochs\n{self._table()}"

    def _table(self) -> str:
        full = {key: v for key, v in self._scalars().items() if len(v) == len(self.epoch)}
        rows = [[str(n + 1), *(f"{v[i]:.4g}" for v in full.values())]
                for i, n in enumerate(self.epoch)]  # fmt: skip
        shown = rows if len(rows) <= 12 else [*rows[:6], ["…"] * len(rows[0]), *rows[-5:]]
        return columns([["epoch", *full], *shown])


def plain(value: Any) -> Any:
    """A number of the logs for JSON: a float, or a list of a metric of several numbers."""
    found = np.asarray(value, np.float64)
    return float(found.reshape(())) if found.size == 1 else found.tolist()
