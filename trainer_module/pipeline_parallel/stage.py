"""A part of the model as a pure function of tensors.

The Keras layers of a *template* are the code; weights and state are arguments, by
``keras.StatelessScope``. So one template serves any number of devices. The graph of a microbatch
contains nothing stateful: a write would order the microbatches, and so prevent their overlap. A
recomputation from the same tensors gives the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from stagecraft.trainer_module.data.batch import Nest
from stagecraft.trainer_module.models import model_graph, structural_keys
from stagecraft.trainer_module.models.layers import dropout, random_state
from stagecraft.trainer_module.models.layers.random_state import TrainingScope, floatx, random_scope
from stagecraft.trainer_module.pipeline_parallel import partition, remat as recomputation
from stagecraft.trainer_module.pipeline_parallel.remat import recomputed, recomputed_by_shards
from stagecraft.trainer_module.pipeline_parallel.shared_function import Packed, Shared
from stagecraft.trainer_module.tensor_parallel.call import Weights
from stagecraft.trainer_module.tensor_parallel.model_shards import ModelShards

Value = Any
"""A tensor, or the list of its slices by shard."""


class Held:
    """The variables of a model, or of a part of it, in the order of a stage's values."""

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        entries: Sequence[Any],
        shards: ModelShards | None,
    ):
        """``entries``: what the stage holds: variables, and slices of variables."""
        self.variables = list(variables)
        self._shards = shards
        places = {id(entry): place for place, entry in enumerate(entries)}
        self.places = [
            [places[id(entry)] for entry in shards.entries(variable)]
            if shards
            else [places[id(variable)]]
            for variable in variables
        ]
        """The places of each variable, or of its slices, among the stage's values."""
        self.indices = [place for places in self.places for place in places]
        """The places of the model's values among those of the stage."""
        self.of_shards = [getattr(entries[place], "shard", 0) for place in self.indices]
        """The shard that holds each."""

    def grouped(self, values: Sequence[tf.Tensor]) -> list[Value]:
        """One value for each variable, from those at ``indices``."""
        rest = iter(values)
        return [
            [next(rest) for _ in places] if self._is_divided(variable) else next(rest)
            for variable, places in zip(self.variables, self.places, strict=True)
        ]

    def flat(self, changed: Mapping[int, Value]) -> dict[int, tf.Tensor]:
        """Index in ``variables`` -> value, as place among the stage's values -> value."""
        result: dict[int, tf.Tensor] = {}
        for index, value in changed.items():
            values = value if isinstance(value, list) else [value]
            result.update(zip(self.places[index], values, strict=True))
        return result

    def joined(self, values: Sequence[Value]) -> list[tf.Tensor]:
        """The whole value of each variable; a graph omits those that nothing uses."""
        return [
            tf.concat(list(map(tf.identity, value)), self._shards.splits[id(variable)].axis)
            if self._shards and isinstance(value, list)
            else value
            for variable, value in zip(self.variables, values, strict=True)
        ]

    @contextlib.contextmanager
    def dividing(
        self, model: keras.Model, values: Sequence[Value], scope: keras.StatelessScope
    ) -> Iterator[Weights | None]:
        """In the block, shards divide the calls of the model's layers, if values are slices."""
        divided = {
            id(variable): value
            for variable, value in zip(self.variables, values, strict=True)
            if isinstance(value, list)
        }
        if not divided or self._shards is None:
            yield None
            return
        weights = Weights(divided, self._shards.splits, scope)
        with self._shards.dividing(model, weights), self._shards.regularized(model, weights):
            yield weights

    def _is_divided(self, variable: keras.Variable) -> bool:
        return self._shards is not None and id(variable) in self._shards.splits


Tensors = Sequence[tf.Tensor]

_NOTHING_STOPPED: tuple[tuple[int, ...], bool] = ((), False)


class Outputs(NamedTuple):
    """The results of a stage."""

    outputs: Nest
    """Each tensor ``[batch, ...]``."""
    changed: dict[int, tf.Tensor]
    """Assigned variables: index in ``Stage.variables`` -> next value."""
    penalty: tf.Tensor
    """The model's own losses (regularizers, ``add_loss``), times ``parts``: a scalar."""


class Called(NamedTuple):
    """The results of a segment's layers."""

    outputs: Nest
    changed: dict[int, Value]
    """Index in ``Segment.variables`` -> next value."""
    added: list[tf.Tensor]
    """Losses of ``add_loss`` and activity regularizers, each summed, as in Keras."""
    regularization: list[tf.Tensor]
    """Losses of weight regularizers."""
    foreign: list[keras.Variable]
    """Assigned variables that are not the model's."""


class Stage:
    """A model, or a part of one, as a function."""

    def __init__(
        self,
        model: keras.Model,
        jit: bool = False,
        remat: bool = False,
        parts: int = 1,
        dtype: tf.DType = tf.float32,
        before: Sequence[keras.Model] = (),
        shards: ModelShards | None = None,
        equal: EqualSegments | None = None,
    ):
        """Prepares the function; computes nothing.

        Args:
            model: its variables are read for their paths only.
            jit: compile it, and its gradient, with XLA.
            remat: store only inputs and outputs of about sqrt(n) segments, and recompute the rest.
            parts: number of parts of a batch; each is a separate call of the stage.
            dtype: of the penalty: float32 or float64.
            before: models of the stages before. A weight that one of them has as well counts in
                that stage's penalty alone.
            shards: how shards divide the layers; XLA then compiles their parts.
            equal: segments of all stages, which share functions if they compute the same; None:
                none does.
        """
        self.model = model
        self.jit, self.shards = jit, shards
        self.trainable = self._held(model.trainable_variables)
        """Weights, and slices of those that shards divide: all of the first shard, and so on."""
        self.state = self._held(model.non_trainable_variables)
        self.variables = [*self.trainable, *self.state]
        self.parts = parts
        self.dtype = dtype
        models = [model]
        if remat:
            models = partition.segments(model)
        elif equal:
            models = equal.split(model)
        self.segments = [
            Segment(each, self, remat, [*before, *models[:index]], equal)
            for index, each in enumerate(models)
        ]
        self.freeze(())
        self._training: Callable[..., Any] = self._train
        if jit and not shards:
            self._training = tf.function(self._train, jit_compile=True, autograph=False)

    def freeze(self, frozen: Collection[str], passes_back: bool = False) -> None:
        """Leaves the weights with these paths out of the passes that are traced next.

        Args:
            passes_back: whether the stage before needs the gradients of the inputs.
        """
        self._is_trained = [each.path not in frozen for each in self.trainable]
        places = tuple(k for k, is_trained in enumerate(self._is_trained) if not is_trained)
        self._stopped = (places, not passes_back) if places else _NOTHING_STOPPED

    def trained(self, values: Iterable[Any]) -> list[Any]:
        """The values of the weights that are not frozen; ``values``: those of ``variables``."""
        return list(itertools.compress(values, self._is_trained))

    @property
    def assigned(self) -> frozenset[int]:
        """Ids of those of ``state`` that layers assign in training."""
        places = {
            place
            for segment in self.segments
            for index in segment.assigned
            for place in segment.held.places[index]
        }
        return frozenset(id(self.variables[k]) for k in places if k >= len(self.trainable))

    @property
    def count(self) -> int:
        """Number of shards."""
        return self.shards.count if self.shards else 1

    def owner(self, place: int) -> int:
        """The shard that holds a variable, by its place in ``variables``."""
        return getattr(self.variables[place], "shard", 0)

    def _held(self, variables: Sequence[keras.Variable]) -> list[Any]:
        if self.shards is None:
            return list(variables)
        return [each for shard in range(self.count) for each in self.shards.held(variables, shard)]

    def __call__(self, values: Tensors, inputs: Nest, step: tf.Tensor, rows: tf.Tensor) -> Outputs:
        """The forward pass of training.

        Args:
            values: of ``variables``.
            inputs: each tensor ``[batch, ...]``.
            step: int64 scalar; random draws depend on it.
            rows: int64 ``[batch]``, the examples' rows in the global batch; draws depend on them.
        """
        return Outputs(*self._training(list(values), inputs, step, rows, self._stopped))

    def infer(self, values: Tensors, inputs: Nest) -> Nest:
        """The forward pass of inference; each tensor ``[batch, ...]``."""
        held = Held(self.model.variables, self.variables, self.shards)
        values = held.grouped([values[place] for place in held.indices])
        pairs = list(zip(held.variables, held.joined(values), strict=True))
        with (
            keras.StatelessScope(pairs) as scope,
            floatx(self.dtype.name),
            held.dividing(self.model, values, scope),
        ):
            return self.model(inputs, training=False)

    def _train(
        self,
        values: list[Any],
        inputs: Nest,
        step: Any,
        rows: Any,
        stopped: tuple[tuple[int, ...], bool],
    ) -> tuple[Nest, dict[int, tf.Tensor], tf.Tensor]:
        """Runs the segments. The gradient of a function computes those of all its arguments.

        Args:
            stopped: the places of values without a gradient; whether inputs have none.
        """
        places, of_inputs = stopped
        values = [tf.stop_gradient(v) if k in places else v for k, v in enumerate(values)]
        if of_inputs:
            inputs = tf.nest.map_structure(tf.stop_gradient, inputs)
        changed: dict[int, tf.Tensor] = {}
        penalties = []
        passes = not of_inputs
        for segment in self.segments:
            inputs, now, own = segment(values, inputs, step, rows, places, passes)
            passes = passes or segment.is_trained(places)
            changed.update(now)
            penalties += own
        return inputs, changed, tf.add_n(penalties or [tf.zeros([], self.dtype)])


class Segment:
    """Layers between two cut points of a stage."""

    def __init__(
        self,
        model: keras.Model,
        stage: Stage,
        remat: bool,
        before: Sequence[keras.Model],
        equal: EqualSegments | None = None,
    ):
        self.model = model
        self.variables = [*model.trainable_variables, *model.non_trainable_variables]
        self.summed: frozenset[int] = frozenset()
        """Indices of the added losses that are sums over the batch; the others are means.
        :mod:`~stagecraft.trainer_module.engines.divisibility` sets them."""
        self.assigned: frozenset[int] = frozenset()
        """Indices of the variables that layers assign in training; set by it as well."""
        self._stage = stage
        self.held = Held(self.variables, stage.variables, stage.shards)
        self._compute = self._run
        if remat and stage.shards:
            self._compute = recomputed_by_shards(self._run, self.held.of_shards)
        elif remat:
            self._compute = recomputed(self._run)
        known = {id(variable) for each in before for variable in each.variables}
        self._regularized = [
            id(v) not in known for v in model.trainable_weights if v.regularizer is not None
        ]
        """Per weight with a regularizer: whether its loss counts here."""

        self.equal = _Equal(self, remat, "") if equal is None else equal.of(self, remat)
        """This segment, and those that compute the same."""

    def is_trained(self, frozen: Collection[int]) -> bool:
        """Whether it has weights, by their places in the stage, that are not frozen."""
        trained = len(self._stage.trainable)
        return any(place < trained and place not in frozen for place in self.held.indices)

    def __call__(
        self,
        values: list[Any],
        inputs: Nest,
        step: Any,
        rows: Any,
        frozen: Collection[int],
        passes: bool,
    ) -> tuple[Nest, dict[int, tf.Tensor], list[tf.Tensor]]:
        """Outputs, changed variables by their index in the stage, and the penalties, at most one.

        Without losses the list is empty: a constant 0 would seem to connect weights and loss.

        Args:
            values: of the stage.
            frozen: places in the stage of weights that have no gradient.
            passes: whether the inputs have gradients.
        """
        own = [values[index] for index in self.held.indices]
        if self.equal.count > 1:
            stopped = [k for k, place in enumerate(self.held.indices) if place in frozen]
            shared = self.equal.call(self, own, inputs, step, rows, tuple(stopped), passes)
            if shared is not None:
                outputs, changed = shared
                return outputs, self.held.flat(changed), []
        return self._compute(inputs, step, rows, *own)

    def call(
        self,
        values: Sequence[Value],
        inputs: Nest,
        step: Any,
        rows: Any,
        draws: random_state.Draws | None = None,
    ) -> Called:
        """Calls the layers for training.

        Args:
            values: of the variables; the list of its slices for a variable that shards divide.
            inputs: each tensor ``[batch, ...]``.
            draws: of a function that other segments share.
        """
        whole = self.held.joined(values)
        with (
            TrainingScope(self.variables, whole) as scope,
            random_scope(step, rows, draws),
            floatx(self._stage.dtype.name),
            self.held.dividing(self.model, values, scope) as divided,
        ):
            outputs = self.model(inputs, training=True)
            losses = [tf.reduce_sum(tf.cast(loss, self._stage.dtype)) for loss in self.model.losses]
        changed: dict[int, Value] = {
            index: tf.convert_to_tensor(value)
            for index, variable in enumerate(self.variables)
            if (value := scope.get_current_value(variable)) is not None
            and value is not whole[index]
        }
        if divided is not None:
            for index, variable in enumerate(self.variables):
                slices = divided.assigned(variable)
                changed.update({} if slices is None else {index: slices})
        # Keras lists the losses that layers add first, then those of weight regularizers.
        added = len(losses) - len(self._regularized)
        regularization = list(itertools.compress(losses[added:], self._regularized))
        return Called(outputs, changed, losses[:added], regularization, scope.foreign)

    def _run(self, inputs: Any, step: Any, rows: Any, *values: Any) -> Any:
        called = self.call(self.held.grouped(values), inputs, step, rows)
        # Keras sums all losses. The engines take a mean over the parts of a batch.
        penalties = [
            loss * self._stage.parts if place in self.summed else loss
            for place, loss in enumerate(called.added)
        ]
        penalties += called.regularization
        changed = self.held.flat(called.changed)
        return called.outputs, changed, [tf.add_n(penalties)] if penalties else []


class EqualSegments:
    """The segments of all stages, by what they compute."""

    def __init__(self, model: keras.Model, device_type: str):
        """Finds equal blocks.

        Args:
            model: the whole.
            device_type: of the devices of the stages, such as ``GPU``.
        """
        self._device_type = device_type
        self._cuts = frozenset(partition.block_cuts(model))
        self._known: dict[Any, _Equal] = {}

    def split(self, model: keras.Model) -> list[keras.Model]:
        """The blocks of a stage, and what is between them."""
        if not self._cuts:
            return [model]
        names = [point.layer for point in partition.cut_points(model)]
        return partition.split(model, [name for name in names if name in self._cuts])

    def of(self, segment: Segment, remat: bool) -> _Equal:
        """The segments that compute the same as this one."""
        model, alone = segment.model, _Equal(segment, remat, self._device_type)
        key = structural_keys.model_key(model)
        if key is None:
            return alone
        ends = model_graph.of(model), partition.output(model)
        inputs, outputs = map(_differentiable, ends)
        if len(inputs) > 1 or len(outputs) != 1:
            return alone
        specs = [structural_keys.specs_key(end) for end in ends]
        equal = self._known.setdefault((key, *specs), alone)
        equal.count += equal is not alone
        return equal


class _Equal:
    """Segments that compute the same, with other weights and random numbers.

    They share functions: what TensorFlow traces and optimizes does not grow with their number.
    """

    def __init__(self, first: Segment, remat: bool, device_type: str):
        self.first, self.count = first, 1
        self._remat, self._device_type = remat, device_type
        self._functions: dict[Any, Shared] = {}
        self._draws: dict[Any, list[tuple[str, int]]] = {}
        self._has_losses = False

    def call(
        self,
        segment: Segment,
        values: Sequence[tf.Tensor],
        inputs: Nest,
        step: tf.Tensor,
        rows: tf.Tensor,
        frozen: tuple[int, ...],
        passes: bool,
    ) -> tuple[Nest, dict[int, tf.Tensor]] | None:
        """Outputs, and index of a changed variable -> value; None: they cannot share a function.

        Args:
            values: of the variables of the segment.
            inputs: at most one of them can have a gradient.
            frozen: places of the values that have no gradient.
            passes: whether the inputs have one.
        """
        flat = tf.nest.flatten(inputs)
        wanted = _differentiable(inputs) if passes else []
        key = frozen, bool(wanted)
        shared = self._functions.get(key)
        if shared is None:
            function = functools.partial(self._traced, key)
            shared = self._functions[key] = Shared(function, self._device_type)
        trained = len(self.first.model.trainable_variables)
        groups = [("", [k for k in range(trained) if k not in frozen])]

        def packed(own: Sequence[tf.Tensor]) -> Packed:
            with tf.device(f"/device:{self._device_type}:*"):
                return Packed.of(own, [("", range(len(own)))])

        trace = shared.trace(packed(values), inputs, step, rows, _hidden([]))
        if self._has_losses or not trace.is_closed:
            return None
        keys = self._keys(segment, self._draws[key])

        def pack(tensors: Sequence[tf.Tensor]) -> tuple[Packed, Nest]:
            given, own = tensors[: len(flat)], tensors[len(flat) :]
            return packed(own), tf.nest.pack_sequence_as(inputs, given)

        @tf.custom_gradient
        def once(*tensors: tf.Tensor) -> tuple[Any, Callable[..., list[Any]]]:
            call = shared(*pack(tensors), step, rows, keys, keep=not self._remat)
            results = tf.nest.flatten(call.results)

            def gradient(*upstream: tf.Tensor) -> list[Any]:
                (place,) = _differentiable(trace.results[0])
                again, arrived = call, upstream[place]
                if self._remat:
                    is_here = recomputation.arrival([arrived])
                    late = [recomputation.after(is_here, each) for each in tensors]
                    again = shared(*pack(late), step, rows, keys)
                found = again.gradients([arrived], groups, wanted)
                of_inputs = dict(zip(wanted, found.arguments, strict=True))
                of_weights = found.weights.by_place()
                return [
                    *map(of_inputs.get, range(len(flat))),
                    *map(of_weights.get, range(len(values))),
                ]

            return results, gradient

        results = once(*flat, *values)
        outputs, changed = tf.nest.pack_sequence_as(trace.results, results)
        return outputs, changed

    def _traced(
        self,
        key: Any,
        values: Sequence[tf.Tensor],
        inputs: Nest,
        step: tf.Tensor,
        rows: tf.Tensor,
        keys: tf.Tensor,
    ) -> tuple[Any, Sequence[int]]:
        frozen, passes = key
        values = [tf.stop_gradient(v) if k in frozen else v for k, v in enumerate(values)]
        draws = random_state.Draws(keys)
        if not passes:
            inputs = tf.nest.map_structure(tf.stop_gradient, inputs)
        called = self.first.call(values, inputs, step, rows, draws)
        self._draws[key] = draws.names
        self._has_losses |= bool(called.added or called.regularization)
        return (called.outputs, called.changed), _differentiable(called.outputs)

    def _keys(self, segment: Segment, draws: Sequence[tuple[str, int]]) -> tf.Tensor:
        """The keys of a segment's draws, uint64 ``[draws]``."""
        names = zip(
            *(dropout.keyed_names(each.model) for each in (self.first, segment)), strict=True
        )
        own = dict(names)
        return _hidden([random_state.key(own[name], count) for name, count in draws])


def _differentiable(tensors: Nest) -> list[int]:
    """The places of the tensors that can have a gradient."""
    flat = enumerate(tf.nest.flatten(tensors))
    return [place for place, each in flat if model_graph.is_differentiable(each)]


def _hidden(keys: Sequence[int]) -> tf.Tensor:
    """Keys of which TensorFlow does not know that they are constants.

    It would make a copy of a function for each set of constants.
    """
    return tf.raw_ops.PlaceholderWithDefault(
        input=tf.constant([*keys], tf.uint64, [len(keys)]), shape=[None]
    )
