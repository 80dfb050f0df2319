"""A model, as a caller gives it, and what ``compile`` gets: in this process, or in others."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from stagecraft import process_state
from stagecraft.common.errors import SettingError
from stagecraft.common.settings import readable
from stagecraft.parallel_model import session
from stagecraft.trainer_module import registries
from stagecraft.trainer_module.models import matrices
from stagecraft.trainer_module.optimization.optimizers.muon.muon_optimizer import Muon
from stagecraft.trainer_module.planning.search import automatic
from stagecraft.trainer_module.settings import ParallelSettings, TrainingSettings

Model: TypeAlias = keras.Model | Callable[[], keras.Model]
"""A model, or a function that builds one."""

Loss: TypeAlias = str | keras.losses.Loss | Callable[..., Any] | Sequence[Any] | Mapping[str, Any]
"""A loss of ``compile``: one, or those of the outputs."""

Optimizer: TypeAlias = str | keras.optimizers.Optimizer

Metrics: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Metrics of ``compile``."""

LossWeights: TypeAlias = float | Sequence[float] | Mapping[str, float]


def compiled_with(*values: Any) -> dict[str, Any]:
    """Arguments of ``compile`` in the order of its signature, those that are not None."""
    names = ("optimizer", "loss", "metrics", "loss_weights", "weighted_metrics")
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


@dataclasses.dataclass
class Work:
    """A model on a topology."""

    model: Any
    """A Keras model, or a function that builds one."""
    parallel: ParallelSettings | None
    """The topology; None: that of the model."""
    compiled: Mapping[str, Any]
    """Arguments of ``compile``; empty: the model is compiled."""
    seed: int | None

    def placed(self) -> Any:
        """The model, compiled, on the devices of its topology.

        Raises:
            UserError: the arguments do not fit.
        """
        own = isinstance(self.model, keras.Layer)
        if not own and not session.builds(self.model):
            raise session.refused_model(self.model)
        if own and self.parallel is None:
            model = self.model
        else:
            model = session.parallelize(self.model if own else self._built, self.parallel)
        self.compile(model)
        return model

    def compile(self, model: Any) -> None:
        """Compiles a model, if there are arguments for that.

        Raises:
            SettingError: there are none, and it is not compiled.
        """
        if self.compiled:
            given = dict(self.compiled)
            before = getattr(model, "optimizer", None)
            given.setdefault("optimizer", "adam" if before is None else before)
            if given["optimizer"] == Muon.__name__.lower():  # not all versions of Keras have one
                given["optimizer"] = Muon()
            model.compile(**given)
        elif not getattr(model, "compiled", False):
            use = "loss=…, or model.compile(…) before"
            raise SettingError("loss", None, "is not set, and the model is not compiled", use)
        _tell_weights(model)

    def _built(self) -> Any:
        with _policy(self.parallel), process_state.as_tf_keras():
            model = self.model()
        if not isinstance(model, keras.Layer):
            raise session.refused_model(model)
        return model

    @contextlib.contextmanager
    def seeded(self) -> Iterator[None]:
        """In the block, random numbers follow from the seed, if there is one."""
        if self.seed is None:
            yield
            return
        with process_state.restored():
            keras.utils.set_random_seed(self.seed)
            yield


def _tell_weights(model: Any) -> None:
    """Tells an optimizer of matrices, such as Muon, which layers are the last."""
    check = getattr(model.optimizer, "check_weights", None)
    if not callable(check):
        return
    if not model.built:
        use = "model.build(…), or a call of the model, before"
        problem = "has to know the layers of the model, which is not built"
        raise SettingError("optimizer", type(model.optimizer).__name__, problem, use)
    matrices.mark(model)
    check(model.trainable_variables)


@contextlib.contextmanager
def _policy(parallel: ParallelSettings | None) -> Iterator[None]:
    """In the block, Keras makes layers of ``parallel.precision``, if it is set."""
    known = parallel is not None and "precision" in parallel.model_fields_set
    if parallel is None or not known or parallel.precision == "auto":
        yield
        return
    before = keras.config.dtype_policy(), keras.config.floatx()
    try:
        keras.config.set_dtype_policy(parallel.precision)
        keras.config.set_floatx(keras.DTypePolicy(parallel.precision).variable_dtype)
        yield
    finally:
        keras.config.set_dtype_policy(before[0])
        keras.config.set_floatx(before[1])


def chosen(
    model: Any, parallel: ParallelSettings, batch_size: int | None, optimizer: Any = None
) -> tuple[Any, ParallelSettings]:
    """Model and topology; a search chooses it, if ``strategy="auto"`` leaves the choice.

    A function is called, if the search needs its model.

    Raises:
        UserError: no topology is possible.
    """
    if not parallel.found.resolves:
        return model, parallel
    if session.builds(model):
        model = model()
    if not isinstance(model, keras.Layer):
        raise session.refused_model(model)
    wanted = settings(parallel, batch_size or 32, optimizer)
    found = automatic.resolved(wanted, lambda: model).settings.parallel
    return model, found.model_copy(update={"microbatch_schedule": parallel.microbatch_schedule})


def settings(parallel: ParallelSettings, batch_size: int, optimizer: Any) -> TrainingSettings:
    """Settings that a planner reads: the numbers of a training, and its optimizer's slots.

    Keras computes the loss of a whole batch. So all microbatches go forward before one goes back.

    Raises:
        UserError: a number does not fit the topology.
    """
    known = {entry.name for entry in registries.OPTIMIZERS.entries()}
    name = optimizer if isinstance(optimizer, str) else type(optimizer).__name__
    name = name.lower() if name.lower() in known else "adamw"
    topology = parallel.definite.model_dump()
    if "microbatch_schedule" not in parallel.model_fields_set and topology["virtual_stages"] == 1:
        topology["microbatch_schedule"] = "gpipe"
    with readable():
        return TrainingSettings.model_validate(
            {
                "train": {"batch_size": batch_size, "steps": 1, "optimizer": name},
                "parallel": topology,
            }
        )
