"""What ``fit`` returns."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any

from stagecraft.fitting.plan import Plan
from stagecraft.schemas.columns import columns
from stagecraft.trainer_module.parallel.topology import Topology

_FILE = "history.json"


@dataclasses.dataclass(eq=False, repr=False)
class History:
    """The course of a training, as ``keras.callbacks.History`` has it."""

    history: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """``loss``, the metrics, and ``val_loss`` and so on: a number for each epoch."""
    epoch: list[int] = dataclasses.field(default_factory=list)
    """Numbers of the epochs, from 0."""
    params: dict[str, Any] = dataclasses.field(default_factory=dict)
    """``epochs``, ``steps`` of an epoch, ``verbose``."""
    model: Any = None
    """The trained ``keras.Model``: the one that ``fit`` got, or the one that its function built."""
    topology: Topology | None = None
    """The devices of the process that trained; of the chief, if there were several."""
    plan: Plan | None = None
    """Cuts and predicted costs of a model in stages."""
    examples_per_second: float = 0.0
    """Speed of the steps, without tracing, evaluations and checkpoints."""

    def add(self, epoch: int, logs: dict[str, float]) -> None:
        """Adds the numbers of an epoch."""
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)

    def plot(self) -> Any:
        """Curves of loss and metrics by epoch: a ``matplotlib.figure.Figure``."""
        from matplotlib.figure import Figure

        names = [name for name in self.history if not name.startswith("val_")]
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

    def __repr__(self) -> str:
        return f"History of {len(self.epoch)} epochs\n{self._table()}"

    def _table(self) -> str:
        full = {key: v for key, v in self.history.items() if len(v) == len(self.epoch)}
        rows = [[str(n + 1), *(f"{v[i]:.4g}" for v in full.values())]
                for i, n in enumerate(self.epoch)]  # fmt: skip
        shown = rows if len(rows) <= 12 else [*rows[:6], ["…"] * len(rows[0]), *rows[-5:]]
        return columns([["epoch", *full], *shown])

    def write(self, folder: str) -> None:
        """Writes epochs and numbers to a file, whole or not at all."""
        path = pathlib.Path(folder, _FILE)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"epoch": self.epoch, "history": self.history}))
        os.replace(part, path)

    def read(self, folder: str, epochs: int) -> None:
        """Reads what :meth:`write` wrote, up to a number of epochs; nothing if there is no file."""
        path = pathlib.Path(folder, _FILE)
        if not path.exists():
            return
        found = json.loads(path.read_text())
        kept = sum(number < epochs for number in found["epoch"])
        share = kept / max(len(found["epoch"]), 1)
        self.epoch[:] = found["epoch"][:kept]
        self.history.clear()
        self.history.update({k: v[: round(share * len(v))] for k, v in found["history"].items()})
