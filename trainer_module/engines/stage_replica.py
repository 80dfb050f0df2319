"""A stage of a replica: its variables, slots and averages, all on one device.

    replica 0:  stage(0, 0) on CPU:0 -> stage(0, 1) on CPU:1 -> stage(0, 2) on CPU:2
    replica 1:  stage(1, 0) on CPU:3 -> stage(1, 1) on CPU:4 -> stage(1, 2) on CPU:5

Replicas are the rows of the grid, stages its columns; a column holds equal variables, bit for bit.
With ``parallel.shards``, each stage has a column for each of its shards. The first shard holds the
variables that are not divided.

The first stage that uses a weight holds it, with its slots and average. A later stage of the
replica that uses it too (a *tied* weight, such as an embedding that also makes the logits) copies
its value in each step, and adds its gradient to that of the first stage.

With ``parallel.zero``, each replica has the slots of a slice of each weight: see
:class:`ReplicaSlices`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.models import matrices
from stagecraft.trainer_module.optimization import averages, slots
from stagecraft.trainer_module.optimization.gradients import add_noise, clip_by_value
from stagecraft.trainer_module.optimization.make_optimizer import make_optimizer
from stagecraft.trainer_module.pipeline_parallel.stage import Stage
from stagecraft.trainer_module.settings import TrainSettings
from stagecraft.trainer_module.tensor_parallel.split import Slice, Split

SCOPE = "replica{replica}_stage{stage}{shard}"
"""Name scope of all ops of a stage replica; the placement check goes by it."""


class ReplicaSlices(NamedTuple):
    """ZeRO stage 1: the replicas of a stage divide its optimizer slots.

    Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models",
    arXiv 1910.02054, section 5.1. Of each weight, as a vector, every replica has an equal *slice*.
    In a step it adds up the slices of all replicas' gradients (reduce-scatter), updates its slice
    of the weight with its slice of the slots, and copies the other slices (all-gather). Together
    this sends as much as an all-reduce. It works for optimizers that treat each entry of a weight
    by itself.
    """

    shape: Sequence[int]
    """The shape of the weight."""
    replicas: int

    def cut(self, whole: Any, index: int) -> tf.Tensor:
        """A slice of a tensor, a vector; the last one ends with zeros if they are not even."""
        flat, entries = tf.reshape(whole, [-1]), -(-math.prod(self.shape) // self.replicas)
        begin = min(index * entries, flat.shape[0])
        own = flat[begin : begin + entries]
        return tf.pad(own, [[0, entries - own.shape[0]]])

    def join(self, slices: Sequence[Any]) -> tf.Tensor:
        """The tensor of all slices."""
        return tf.reshape(tf.concat(slices, axis=0)[: math.prod(self.shape)], self.shape)


class StageReplica:
    """One replica (row) of one stage, or of a shard of it (column), on ``device``."""

    def __init__(
        self,
        stage: Stage,
        device: str,
        replica: int,
        number: int,
        train: TrainSettings,
        before: Sequence[StageReplica] = (),
        divided: int = 1,
        shard: int = 0,
    ):
        """Makes the variables.

        Args:
            before: the stages before, of the same replica.
            divided: number of replicas that divide the slots.
            shard: of the stage.
        """
        self.stage, self.shard = stage, shard
        self.trainable = [each for each in stage.trainable if _shard(each) == shard]
        """The part of ``Stage.trainable`` that this shard uses."""
        variables = [*self.trainable, *(v for v in stage.state if _shard(v) == shard)]
        self._replica, self._divided = replica, divided
        self._train = train
        self.device = device
        self._scope = SCOPE.format(
            replica=replica, stage=number, shard=f"_shard{shard}" if shard else ""
        )
        holders: dict[int, StageReplica] = {key: each for each in before for key in each._copies}
        self._variables = variables
        self._holders = [holders.get(id(variable), self) for variable in variables]
        with tf.device(device):
            self._copies: dict[int, keras.Variable] = {
                id(variable): _copy(variable)
                for variable, holder in zip(variables, self._holders, strict=True)
                if holder is self
            }
            self._entries = [v for v in variables if id(v) in self._copies and v.trainable]
            self.weights = [v for v in self._copies.values() if v.trainable]
            self.state = [v for v in self._copies.values() if not v.trainable]
            self.slices = list(map(self._slice, self.weights)) if divided > 1 else []
            """This replica's slice of each of ``weights``, which its optimizer updates."""
            self._updated = self.slices or self.weights
            self.optimizer = make_optimizer(train, self._updated) if self.weights else None
            assigned = [v for key, v in self._copies.items() if key in stage.assigned]
            self._averaged = averages.averaged(train, self.weights, assigned)
            self._averages = averages.create(self._averaged)
        self._held = [key for key, variable in self._copies.items() if variable.trainable]
        self.freeze(())
        places = {id(copy): place for place, copy in enumerate(self._averaged)}
        self._evaluated = {
            key: self._averages[places[id(copy)]] if id(copy) in places else copy
            for key, copy in self._copies.items()
        }

    def freeze(self, frozen: Collection[str]) -> None:
        """Leaves the weights with these paths out of the steps that are traced next."""
        uses = list(zip(self.trainable, self._holders, strict=False))
        uses = [(weight, holder) for weight, holder in uses if weight.path not in frozen]
        self.trained = [weight for weight, _ in uses]
        """Weights of ``trainable`` that are not frozen."""
        self.holders = [holder for _, holder in uses]
        """The stage that holds each of ``trained``: this one, or one before."""
        self.connected = [True] * len(self.trained)
        """A flag for each of ``trained``: whether it has a gradient in this stage; known when the
        backward pass has been traced."""
        weights = enumerate(self.weights)
        self._places = [place for place, weight in weights if weight.path not in frozen]
        self.held = [self._held[place] for place in self._places]
        """Ids of the template's variables that the trained ones of ``weights`` are copies of."""
        self.has_gradient = [True] * len(self._places)
        """A flag for each of them: whether it has a gradient in any stage."""

    def _slice(self, weight: keras.Variable) -> keras.Variable:
        return _named(weight.path, self.cut(weight.value), weight.dtype)

    @contextlib.contextmanager
    def scope(self, part: str, after: Sequence[Any] = ()) -> Iterator[None]:
        """Ops made in it run on its device, once ``after`` has been computed."""
        with (
            tf.device(self.device),
            tf.name_scope(f"{self._scope}/{part}/"),
            tf.control_dependencies(list(after)),
        ):
            yield

    def read(self, averaged: bool = False) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Weights and state of this shard as tensors on this device, read once a step.

        ``averaged``: averages in place of the variables that have some.
        """
        values = []
        for variable, holder in zip(self._variables, self._holders, strict=True):
            source = holder._evaluated if averaged else holder._copies
            with holder.scope("read"):
                value = tf.identity(tf.convert_to_tensor(source[id(variable)]))
            if holder is not self:
                with self.scope("read"):
                    value = tf.identity(value)
            values.append(value)
        count = len(self.trainable)
        return values[:count], values[count:]

    @property
    def slot_slices(self) -> Mapping[str, ReplicaSlices]:
        """Name in a checkpoint of each slot -> how replicas divide it, if they do."""
        if not self.slices:
            return {}
        owners = slots.owners(self.optimizer)
        shapes = {name: self.weights[place].shape for name, place in owners.items()}
        return {name: ReplicaSlices(shape, self._divided) for name, shape in shapes.items()}

    @property
    def shared(self) -> frozenset[str]:
        """Names in a checkpoint of what the optimizers of all stages have alike."""
        return slots.shared(self.optimizer) if self.optimizer else frozenset()

    def update(
        self,
        gradients: Sequence[tf.Tensor],
        changed: Mapping[int, tf.Tensor],
        rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Assigns what layers ``changed``, by place in ``Stage.variables``; applies gradients.

        ``gradients``: of the trained weights that this stage holds, or of their slices; scaled
        already, to limit the norm over all stages.
        """
        if self._train.clip_value:
            gradients = clip_by_value(gradients, self._train.clip_value)
        if self._train.gradient_noise:
            noise = [self._noise(self._entries[place], step) for place in self._places]
            gradients = [one + two for one, two in zip(gradients, noise, strict=True)]
        for index, value in changed.items():
            self._copies[id(self.stage.variables[index])].assign(value)
        if self.optimizer:
            self.optimizer.learning_rate.assign(rate)
            self.optimizer.iterations.assign(step)
            for place in self._places if self.slices else ():
                weight = tf.convert_to_tensor(self.weights[place])
                self.slices[place].assign(self.cut(weight))
            updated = [self._updated[place] for place in self._places]
            pairs = zip(gradients, updated, self.has_gradient, strict=True)
            used = [(gradient, weight) for gradient, weight, is_used in pairs if is_used]
            if used:
                self.optimizer.apply(*map(list, zip(*used, strict=True)))
            else:  # keeps the step count equal to that of other stages
                self.optimizer.iterations.assign(step + 1)

    def _noise(self, entry: Any, step: tf.Tensor) -> tf.Tensor:
        """The noise of this replica's part of an entry: a part of the whole weight's."""
        variable = getattr(entry, "variable", entry)
        zeros = tf.zeros(variable.shape, variable.dtype)
        eta, seed = self._train.gradient_noise or 0.0, self._train.seed
        (whole,) = add_noise([zeros], [variable.path], eta, seed, step)
        own = whole if variable is entry else entry.cut(whole)
        return self.cut(own) if self.slices else own

    def cut(self, value: tf.Tensor) -> tf.Tensor:
        """This replica's slice of a weight or gradient."""
        return ReplicaSlices(value.shape, self._divided).cut(value, self._replica)

    def gather(self, column: Sequence[StageReplica]) -> None:
        """Sets the weights from the slices of all replicas, which have updated them."""
        for place, is_used in zip(self._places, self.has_gradient, strict=True):
            if not is_used:
                continue
            weight, parts = self.weights[place], []
            for other in column:
                with other.scope("gather"):
                    part = tf.identity(tf.convert_to_tensor(other.slices[place]))
                with self.scope("gather"):
                    parts.append(tf.identity(part))
            with self.scope("gather"):
                value = ReplicaSlices(weight.shape, self._divided).join(parts)
                weight.assign(value if weight.constraint is None else weight.constraint(value))

    def update_averages(self, decay: tf.Tensor, due: tf.Tensor) -> None:
        """Moves the EMA weights; with lookahead, pulls the weights if that is ``due``."""
        if self._train.lookahead and self._averages:
            averages.when_due(due, functools.partial(self._pull, decay))
            return
        for average, variable in zip(self._averages, self._averaged, strict=True):
            averages.move_ema(average, variable.value, decay)

    def _pull(self, decay: tf.Tensor) -> None:
        """Pulls the weights that have a gradient, and the moving statistics."""
        uses = zip(self._places, self.has_gradient, strict=True)
        unused = {id(self.weights[place]) for place, is_used in uses if not is_used}
        frozen = {*map(id, self.weights)} - {id(self.weights[place]) for place in self._places}
        with self.scope("update"):
            for slow, variable in zip(self._averages, self._averaged, strict=True):
                if id(variable) in frozen:
                    averages.follow(slow, variable.value)
                elif id(variable) not in unused:
                    averages.pull(slow, variable.value, decay, variable.constraint)

    @property
    def splits(self) -> Mapping[str, Split]:
        """Name in a checkpoint of each slice, and of its slots -> how the variable is divided."""
        divided = [
            (copy, entry.split)
            for entry in self._variables
            if isinstance(entry, Slice) and (copy := self._copies.get(id(entry))) is not None
        ]
        result = {f"model/{copy.path}": split for copy, split in divided}
        result |= {f"ema/{copy.path}": split for copy, split in divided}
        owners = slots.owners(self.optimizer) if self.optimizer else {}
        for name, place in owners.items():
            if isinstance(entry := self._entries[place], Slice):
                result[name] = entry.split
        return result

    def named(self) -> list[tuple[str, Any]]:
        """Name in a checkpoint -> variable."""
        averaged = zip(self._averaged, self._averages, strict=True)
        return [
            *((f"model/{variable.path}", variable) for variable in (*self.weights, *self.state)),
            *(slots.named(self.optimizer) if self.optimizer else ()),
            *((f"ema/{variable.path}", average) for variable, average in averaged),
        ]


def _shard(entry: Any) -> int:
    return getattr(entry, "shard", 0)


def _copy(variable: Any) -> keras.Variable:
    """A variable of the same path, value and role on the current device."""
    value = tf.identity(variable.value)
    copy = _named(variable.path, value, variable.dtype, trainable=variable.trainable)
    copy.constraint = variable.constraint
    matrices.copy(variable, copy)
    return copy


def _named(path: str, value: tf.Tensor, dtype: str, *, trainable: bool = True) -> keras.Variable:
    """A variable of a path on the current device."""
    *parents, name = path.split("/")
    with contextlib.ExitStack() as scopes:
        for parent in parents:
            scopes.enter_context(keras.name_scope(parent))
        return keras.Variable(value, trainable=trainable, dtype=dtype, name=name)
