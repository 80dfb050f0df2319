"""Calls that run on one device, forward and back.

``tf.device`` around a forward pass leaves the whole backward pass on the device of whoever asks for
the gradient. So each pinned call has a tape of its own, whose gradient is taken under its device.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src import backend
from keras.src.backend.common import global_state

# Not public; what tf.custom_gradient uses, which would copy all arguments to one device.
from tensorflow.python.eager import record

from stagecraft.common.errors import UserError
from stagecraft.parallel_model import draws
from stagecraft.trainer_module.models.layers.random_state import assigned_value
from stagecraft.trainer_module.pipeline_parallel import remat as recomputation
from stagecraft.trainer_module.tensor_parallel.call import Weights
from stagecraft.trainer_module.tensor_parallel.split import Split

Call = Callable[..., Any]
Value = Any
"""A tensor, or :class:`Sliced`."""


class Sliced(NamedTuple):
    """The slices of a variable's value."""

    tensors: Sequence[tf.Tensor]
    axis: int

    def whole(self) -> tf.Tensor:
        """The value, on the current device."""
        return tf.concat(list(map(tf.identity, self.tensors)), self.axis)


def tensors_of(value: Value) -> Sequence[tf.Tensor]:
    """The tensor, or those of the slices."""
    return value.tensors if isinstance(value, Sliced) else [value]


def with_tensors(value: Value, tensors: Iterator[tf.Tensor]) -> Value:
    """A value that consists of the next tensors."""
    if isinstance(value, Sliced):
        return value._replace(tensors=[next(tensors) for _ in value.tensors])
    return next(tensors)


class SecondDerivativeError(UserError):
    """A tape records while it computes a gradient through a pinned call."""

    def __init__(self) -> None:
        super().__init__(
            "parallel: the model is differentiated twice, which a topology of several devices does "
            "not support. If no second derivative is wanted, call tape.gradient after the block of "
            "the tape; otherwise, train on one device",
            setting="parallel",
            suggestion="one device",
        )


class Scope(keras.StatelessScope):
    """Values of variables; collects what layers assign, and the losses that they add."""

    def __init__(self, values: dict[int, Value], trained: frozenset[int] = frozenset()):
        """``values``: id of a variable -> value; ``trained``: ids of those with gradients."""
        super().__init__(collect_losses=True)
        self._given, self.trained = values, trained
        self.loss_ids: list[int] = []
        """Ids of the losses as layers know them (``Layer._loss_ids``)."""
        self.updates: dict[int, tuple[keras.Variable, tf.Tensor]] = {}

    def add_loss(self, loss: tf.Tensor) -> None:
        """Collects a loss."""
        super().add_loss(loss)
        self.loss_ids.append(id(loss))

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores an assignment, for later reads and for the end of the part.

        The gradient of an assigned weight is that of the weight, as in Keras.
        """
        variable, value = update
        if id(variable) in self.trained:
            current = self.get_current_value(variable)
            value = assigned_value(variable.value if current is None else current, value)
        else:
            value = tf.stop_gradient(value)
        self.updates[id(variable)] = variable, value

    def given(self, variable: keras.Variable) -> tf.Tensor:
        """The value before the part."""
        value = self._given.get(id(variable))
        return tf.convert_to_tensor(variable._value) if value is None else _whole(value)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """The value that layers assigned last, or the given one."""
        key = id(variable)
        return self.updates[key][1] if key in self.updates else _whole(self._given.get(key))


def _whole(value: Value | None) -> tf.Tensor | None:
    return value.whole() if isinstance(value, Sliced) else value


class Pinned(Scope):
    """The scope of a pinned call: copies of values on its device, which its tape watches."""

    def __init__(
        self,
        outer: Scope,
        tape: tf.GradientTape | None,
        earlier: Mapping[int, tuple[keras.Variable, tf.Tensor]],
    ):
        """Takes the scope of the part.

        Args:
            earlier: assignments before the call.
        """
        super().__init__({}, outer.trained)
        self._outer, self._tape, self._earlier = outer, tape, earlier
        # A branch of a condition is a graph of its own, and the other one may read a copy, too.
        eager = tf.executing_eagerly()
        self._graph = None if eager else tf.compat.v1.get_default_graph()
        self.used: dict[tuple[int, int], tuple[tf.Tensor, tf.Tensor]] = {}
        """Id of a trained variable that the call reads, and a shard -> value outside, and copy."""

    def copy(self, key: int) -> Value | None:
        """The copy of a variable's current value, by the id of the variable; None: not known."""
        if key in self._given:
            return self._given[key]
        value = self._earlier[key][1] if key in self._earlier else self._outer._given.get(key)
        return None if value is None else self._copy(key, value, key in self.trained)

    def _copy(self, key: int, value: Value, is_trained: bool) -> Value:
        graph = contextlib.nullcontext if self._graph is None else self._graph.as_default
        copies = []
        for shard, tensor in enumerate(tensors_of(value)):
            # A slice stays on its device.
            device = (
                tf.device(tensor.device) if isinstance(value, Sliced) else contextlib.nullcontext()
            )
            with graph(), device, record.stop_recording():
                copy = tf.identity(tensor)
            copies.append(copy)
            if is_trained and copy.dtype.is_floating:
                self.used[key, shard] = tensor, copy
                if self._tape is not None:
                    self._tape.watch(copy)
        copied = value._replace(tensors=copies) if isinstance(value, Sliced) else copies[0]
        self._given[key] = copied
        return copied

    def _here(self, variable: keras.Variable) -> Value | None:
        key = id(variable)
        return self.updates[key][1] if key in self.updates else self.copy(key)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """The value as in the base, copied to the device of the call."""
        return _whole(self._here(variable))

    def slices(self, variable: keras.Variable, split: Split) -> Sequence[tf.Tensor]:
        """The slices of the current value; those of an assigned value are on the current device."""
        value = self._here(variable)
        if isinstance(value, Sliced):
            return value.tensors
        whole = tf.convert_to_tensor(variable._value if value is None else value)
        return [split.cut(whole, shard) for shard in range(len(split.sizes))]


class SlicedWeights(Weights):
    """The slices of divided variables, in a pinned call."""

    def __init__(self, splits: Mapping[int, Split]):
        """Takes the slices from the scope of the call; ``splits``: by id of a variable."""
        super().__init__({}, splits)
        self._pinned: Any = backend.get_stateless_scope()

    def of(self, variable: keras.Variable, split: Split, count: int) -> Sequence[tf.Tensor]:
        """The slices of a variable, as the layers before have assigned them."""
        return self._pinned.slices(variable, split)

    def assign(self, variable: keras.Variable, slices: Sequence[tf.Tensor]) -> None:
        """Sets a variable that is not trained."""
        whole = Sliced(slices, self._splits[id(variable)].axis).whole()
        self._pinned.add_update((variable, whole))


def pinned(
    call: Call,
    device: str,
    scope: Scope,
    *,
    remat: bool = False,
) -> Call:
    """A function that calls ``call`` on a device, in the block of a scope.

    Args:
        call: of a layer.
        scope: gets what the call assigns and adds.
        remat: recompute the call for the gradient, and keep only what it takes.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        nest = Nest((args, kwargs))
        given = nest.tensors
        context = Context()
        recording = record.could_possibly_record()
        earlier = dict(scope.updates)

        def forward(
            tape: tf.GradientTape | None, tensors: Sequence[tf.Tensor]
        ) -> tuple[Pinned, Results]:
            own_args, own_kwargs = nest.restored(tensors)
            with tape or contextlib.nullcontext():
                inner = Pinned(scope, tape, earlier)
                if tape is not None:
                    tape.watch([each for each in tensors if each.dtype.is_floating])
                with inner:
                    return inner, Results(call(*own_args, **own_kwargs), inner)

        with tf.device(device):
            with record.stop_recording():
                copies = list(map(tf.identity, given))
            tape = None
            if recording and not remat:  # persistent: somebody may ask for several gradients
                tape = tf.GradientTape(persistent=True, watch_accessed_variables=False)
            inner, results = forward(tape, copies)
            with record.stop_recording():
                outputs = list(map(tf.identity, results.tensors))
        used = [*inner.used.values()]
        sources = [*given, *(value for value, _ in used)]

        def backward(*incoming: tf.Tensor | None) -> list[tf.Tensor | None]:
            if record.could_possibly_record():
                raise SecondDerivativeError
            with tf.device(device):
                arrived = [
                    None if x is None else tf.identity(tf.convert_to_tensor(x)) for x in incoming
                ]
                if tape is not None:
                    own = [*copies, *(copy for _, copy in used)]
                    return _gradients(tape, results.tensors, arrived, own)
                known = recomputation.arrival(arrived)
                again = [recomputation.after(known, each) for each in copies]
                fresh = tf.GradientTape(watch_accessed_variables=False)
                with context.restored():
                    restarted, repeated = forward(fresh, again)
                kept = [restarted.used.get(key, (None, None))[1] for key in inner.used]
                return _gradients(fresh, repeated.tensors, arrived, [*again, *kept])

        if recording:
            outputs = recorded("Pinned", outputs, sources, backward)
        return results.restored(outputs, scope)

    return run


def recorded(
    name: str,
    outputs: Sequence[tf.Tensor],
    sources: Sequence[tf.Tensor],
    backward: Callable[..., list[tf.Tensor | None]],
) -> list[tf.Tensor]:
    """Records an operation whose ``backward`` gets None for outputs that have no gradient.

    A tape gives zeros for such outputs.

    Returns:
        The outputs that others may use.
    """
    arrived: set[int] = set()

    def filtered(*incoming: tf.Tensor) -> list[tf.Tensor | None]:
        given = [each if place in arrived else None for place, each in enumerate(incoming)]
        arrived.clear()  # the tape may be persistent
        return backward(*given)

    record.record_operation(name, outputs, sources, filtered)

    def noted(place: int, output: tf.Tensor) -> tf.Tensor:
        def note(incoming: tf.Tensor) -> list[tf.Tensor]:
            arrived.add(place)
            return [incoming]

        with record.stop_recording(), tf.device(output.device):
            copy = tf.identity(output)
        record.record_operation(f"{name}Output", [copy], [output], note)
        return copy

    return [
        noted(place, each) if each.dtype.is_floating else each for place, each in enumerate(outputs)
    ]


class Nest:
    """Arguments of a call, as a list of tensors and the rest."""

    def __init__(self, nest: Any):
        self._nest = nest
        self._leaves = tf.nest.flatten(nest, expand_composites=True)
        self._places = [place for place, leaf in enumerate(self._leaves) if tf.is_tensor(leaf)]
        found = {place: _mask(self._leaves[place]) for place in self._places}
        self._masks = {place: mask for place, mask in found.items() if mask is not None}
        self.tensors = [
            *(self._leaves[place] for place in self._places), *self._masks.values()
        ]  # fmt: skip
        """The tensors, and their Keras masks."""

    @property
    def key(self) -> str | None:
        """Equal for arguments that differ in the values of tensors alone; None: not known."""
        if any(isinstance(each, _COMPOSITE) for each in tf.nest.flatten(self._nest)):
            return None
        others = [
            (each.dtype, str(each.shape)) if tf.is_tensor(each) else _static(each)
            for each in self._leaves
        ]
        structure = tf.nest.map_structure(lambda _: 0, self._nest)
        masks = [(place, str(mask.shape)) for place, mask in self._masks.items()]
        return repr((structure, others, masks))

    def without_tensors(self) -> Nest:
        """A copy that keeps no graph alive."""
        other = copy.copy(self)
        places = set(self._places)
        other._leaves = [
            None if place in places else leaf for place, leaf in enumerate(self._leaves)
        ]
        other._nest = tf.nest.pack_sequence_as(self._nest, other._leaves)
        other._masks, other.tensors = dict.fromkeys(self._masks), []
        return other

    def restored(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The arguments with other tensors."""
        copies = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=False):
            copies[place] = tensor
        for place, mask in zip(self._masks, tensors[len(self._places) :], strict=True):
            backend.set_keras_mask(copies[place], mask)
        return tf.nest.pack_sequence_as(self._nest, copies, expand_composites=True)


_COMPOSITE = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)


def _static(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else id(value)


class Results:
    """The outputs of a call, and its side effects, as a flat list of tensors."""

    def __init__(self, outputs: Any, inner: Pinned):
        self._outputs = outputs
        leaves = tf.nest.flatten(outputs, expand_composites=True)
        self._places = [place for place, leaf in enumerate(leaves) if tf.is_tensor(leaf)]
        self._leaves = leaves
        masks = {p: m for p in self._places if (m := _mask(leaves[p])) is not None}
        self._masks = list(masks)
        self._variables = [variable for variable, _ in inner.updates.values()]
        self._ids = list(inner.loss_ids)
        first = len(self._places) + len(masks)
        candidates = [*range(len(self._places)), *range(first, first + len(inner.losses))]
        self.tensors = [
            *(leaves[place] for place in self._places),
            *masks.values(),
            *inner.losses,
            *(tf.stop_gradient(value) for _, value in inner.updates.values()),
        ]
        self.differentiable = [
            place for place in candidates if self.tensors[place].dtype.is_floating
        ]
        """Places of the outputs and losses among the tensors."""

    def restored(self, tensors: Sequence[tf.Tensor], scope: Scope) -> Any:
        """The outputs of other tensors; tells the scope the losses and assignments."""
        rest = iter(tensors)
        leaves = list(self._leaves)
        for place in self._places:
            leaves[place] = next(rest)
        for place in self._masks:
            backend.set_keras_mask(leaves[place], next(rest))
        for known in self._ids:
            scope.add_loss(next(rest))
            scope.loss_ids[-1] = known
        for variable in self._variables:
            scope.add_update((variable, tf.stop_gradient(next(rest))))
        return tf.nest.pack_sequence_as(self._outputs, leaves, expand_composites=True)


class Context:
    """State of Keras and this module that belongs to a pass, outside of the arguments of a call."""

    def __init__(self) -> None:
        self._attributes = {name: global_state.get_global_attribute(name) for name in _ATTRIBUTES}
        self._rows = draws.current()

    @property
    def key(self) -> Any:
        """Equal for contexts in which a layer computes the same, but for the rows."""
        call, autocast = self._attributes.values()
        return getattr(call, "training", None), str(getattr(autocast, "dtype", None))

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """In the block, layers find what they found in the forward pass."""
        before = {name: global_state.get_global_attribute(name) for name in _ATTRIBUTES}
        try:
            for name, value in self._attributes.items():
                global_state.set_global_attribute(name, value)
            with draws.of_rows(self._rows):
                yield
        finally:
            for name, value in before.items():
                global_state.set_global_attribute(name, value)


_ATTRIBUTES = ("current_call_ctx", "autocast_scope")
"""Of ``keras/src/layers/layer.py`` and ``keras/src/backend/common/variables.py``."""


def _gradients(
    tape: Any,
    outputs: Sequence[tf.Tensor],
    incoming: Sequence[tf.Tensor | None],
    sources: Sequence[tf.Tensor | None],
) -> list[tf.Tensor | None]:
    """The gradients of the sources, None where there is none.

    That of an embedding stays sparse: Keras's optimizers square the rows one by one.
    """
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, incoming, strict=True)
        if gradient is not None and output.dtype.is_floating
    ]
    floats = [each for each in sources if each is not None and each.dtype.is_floating]
    if not pairs or not floats:
        return [None] * len(sources)
    targets, seeds = zip(*pairs, strict=True)
    found = iter(tape.gradient(list(targets), floats, list(seeds)))
    known = set(map(id, floats))
    return [next(found) if id(each) in known else None for each in sources]


def total(gradients: Sequence[Any]) -> Any:
    """The sum of the gradients of parts, on the current device; sparse if all are.

    A sparse one has a row for each lookup, and Keras's optimizers square the rows one by one. So
    lookups of a batch are put together as in the whole batch; lookups that are the same in each
    part, such as those of positions, are one in the whole batch, and their rows add up.
    """
    if all(isinstance(each, tf.IndexedSlices) for each in gradients):
        if _same_lookups([each.indices for each in gradients]):
            values = tf.add_n([each.values for each in gradients])
            return tf.IndexedSlices(values, gradients[0].indices, gradients[0].dense_shape)
        return tf.IndexedSlices(
            tf.concat([each.values for each in gradients], axis=0),
            tf.concat([each.indices for each in gradients], axis=0),
            gradients[0].dense_shape,
        )
    return tf.add_n(list(map(tf.convert_to_tensor, gradients)))


def joined_gradient(slices: Sequence[Any], split: Split, like: Any) -> Any:
    """The gradient of a value, from those of its slices; None: nothing uses it.

    It is sparse if those of the slices are: see :func:`total`.

    Args:
        slices: a gradient for each slice, or None.
        like: the value, or its variable.
    """
    if all(each is None for each in slices):
        return None
    if all(isinstance(each, tf.IndexedSlices) for each in slices) and split.axis < 2:
        values, indices = [each.values for each in slices], [each.indices for each in slices]
        shape = tf.constant(list(like.shape), indices[0].dtype)
        if split.axis == 1:  # each has looked up the same rows
            return tf.IndexedSlices(tf.concat(values, axis=-1), indices[0], shape)
        begins = [sum(split.sizes[:shard]) for shard in range(len(slices))]
        moved = [own + tf.cast(b, own.dtype) for own, b in zip(indices, begins, strict=True)]
        return tf.IndexedSlices(tf.concat(values, 0), tf.concat(moved, 0), shape)
    dense = [
        tf.zeros(split.shape(like.shape, shard), like.dtype)
        if each is None
        else tf.convert_to_tensor(each)
        for shard, each in enumerate(slices)
    ]
    return tf.concat(dense, split.axis)


def _same_lookups(indices: Sequence[tf.Tensor]) -> bool:
    """Whether they do not depend on the rows of a part, whose number no graph knows."""
    first, *others = indices
    if not tf.executing_eagerly():
        return all(each.shape.is_fully_defined() for each in indices)
    return all(each.shape == first.shape and bool(tf.reduce_all(each == first)) for each in others)


def _mask(tensor: Any) -> Any:
    return backend.get_keras_mask(tensor)
