"""``engine``: one training step at a time, for a loop of the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from stagecraft.common.errors import SettingError
from stagecraft.fitting.history import plain
from stagecraft.fitting.work import (
    Loss,
    LossWeights,
    Metrics,
    Model,
    Optimizer,
    Work,
    chosen,
    compiled_with,
)
from stagecraft.parallel_model import session
from stagecraft.parallel_model.lockstep import build_optimizer, is_built, state
from stagecraft.trainer_module.models.layers import adapting
from stagecraft.trainer_module.parallel.topology import Topology
from stagecraft.trainer_module.processes import launcher
from stagecraft.trainer_module.settings import ParallelSettings

Logs = dict[str, float]


class TrainingEngine:
    """A compiled model on the devices of a topology."""

    def __init__(self, model: Any):
        self._model = model

    @property
    def topology(self) -> Topology | None:
        """The devices; None: one device, as in Keras."""
        own = session.session_of(self._model)
        return None if own is None else own.topology

    @property
    def step(self) -> int:
        """Optimizer steps done so far."""
        return int(self._model.optimizer.iterations)

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self._model.optimizer.learning_rate)

    def train_step(self, batch: Any) -> Logs:
        """Takes one optimizer step.

        Args:
            batch: ``(x, y)`` or ``(x, y, sample_weight)`` of any number of examples.

        Returns:
            ``loss``, with the penalties of the model, and the metrics: of this batch alone.

        Raises:
            SettingError: the batch is something else.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise SettingError(
                "batch", type(batch).__name__, "does not fit", "(x, y) or (x, y, sample_weight)"
            )
        self._model.reset_metrics()
        return _numbers(self._model.train_on_batch(*batch, return_dict=True))

    def evaluate(
        self, x: Any, y: Any = None, sample_weight: Any = None, batch_size: int | None = None
    ) -> Logs:
        """Loss and metrics over the data, as ``keras.Model.evaluate``."""
        arguments = {"batch_size": batch_size, "sample_weight": sample_weight}
        return _numbers(self._model.evaluate(x, y, **arguments, verbose=0, return_dict=True))

    def weights(self) -> list[np.ndarray]:
        """The model's weights, in the order of ``keras.Model.get_weights``."""
        return [np.asarray(each) for each in self._model.get_weights()]

    def model(self) -> keras.Model:
        """The model."""
        return self._model

    def predict(self, x: Any, batch_size: int | None = None) -> Any:
        """The outputs for ``x``, as ``keras.Model.predict``."""
        return self._model.predict(x, batch_size=batch_size, verbose=0)

    def state(self) -> dict[str, np.ndarray]:
        """Weights and state of the optimizer, for :meth:`restore` on any topology."""
        return {f"{n}": np.asarray(each) for n, each in enumerate(self._variables())}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from a :meth:`state`.

        Raises:
            SettingError: the state is that of another model or optimizer.
        """
        own = self._variables()
        found = [np.shape(state.get(f"{n}", "none")) for n in range(len(own))]
        if len(own) != len(state) or found != [tuple(each.shape) for each in own]:
            raise SettingError(
                "state",
                f"of {len(state)} arrays",
                "does not fit the engine",
                f"the state of an equal model and optimizer, {len(own)} arrays",
            )
        for number, variable in enumerate(own):
            variable.assign(state[f"{number}"])

    def _variables(self) -> list[Any]:
        if not is_built(self._model):
            use = "model.build(…), a call of the model, or a first train_step"
            raise SettingError("model", self._model.name, "is not built, so it has no state", use)
        build_optimizer(self._model)
        return state(self._model)


def engine(
    model: Model,
    *,
    optimizer: Optimizer | None = None,
    loss: Loss | None = None,
    loss_weights: LossWeights | None = None,
    metrics: Metrics | None = None,
    weighted_metrics: Metrics | None = None,
    parallel: ParallelSettings | None = None,
    seed: int | None = None,
) -> TrainingEngine:
    """Puts a model and its optimizer on the devices of a topology, for a loop of your own.

    Arguments are those of :func:`stagecraft.fit`. ``seed`` is that of the weights that a function
    gives its model.

    Raises:
        UserError: an argument does not fit, the topology has several processes, or TensorFlow has
            already started without the logical devices of ``virtual_devices``.
    """
    if parallel is not None and launcher.is_local(parallel):
        raise SettingError(
            "parallel.workers",
            parallel.workers,
            "needs several processes, but an engine is an object of this one",
            "stagecraft.fit, which starts processes, or parallel.replicas",
        )
    if parallel is not None:
        model, parallel = chosen(model, parallel, None, optimizer)
    compiled = compiled_with(optimizer, loss, metrics, loss_weights, weighted_metrics)
    work = Work(model, parallel, compiled, seed)
    with work.seeded():
        placed = work.placed()
    adapting.adapt(placed, _no_data)
    return TrainingEngine(placed)


def _no_data() -> Any:
    raise SettingError(
        "model",
        "of the argument",
        "has a layer that adapts to data, and an engine sees no data before its first step",
        "the layer's adapt(x) before stagecraft.engine, or stagecraft.fit",
    )


def _numbers(logs: Mapping[str, Any]) -> Logs:
    return {name: plain(value) for name, value in logs.items()}
