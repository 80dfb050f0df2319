"""Rules by which each shard runs a layer's own code: in a smaller layer, or with slices."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from stagecraft.trainer_module.models import blank
from stagecraft.trainer_module.models.layers.arguments import forgotten
from stagecraft.trainer_module.models.layers.walk import intercepted, walk
from stagecraft.trainer_module.tensor_parallel.call import LayerCall, below
from stagecraft.trainer_module.tensor_parallel.rule import ShardRule, adapted, is_elementwise
from stagecraft.trainer_module.tensor_parallel.split import Split, Way, even


class Part:
    """A smaller layer, which computes with values that it is given."""

    def __init__(
        self,
        kind: type[keras.Layer],
        layer: keras.Layer,
        changes: Mapping[str, Any],
        shape: Any,
    ):
        """Makes a layer of class ``kind`` with ``layer``'s configuration, but for ``changes``.

        ``shape``: of the input; ``Layer.build`` takes it.
        """
        with _without_foreign(layer):
            config = kind.get_config(layer)
            config |= forgotten(kind, layer, config)
        zeros = {name: "zeros" for name in config if name.endswith("_initializer")}
        with blank.scope():  # each call brings all values
            self.layer = kind.from_config({**config, **zeros, **changes})
            self.layer.build(shape)
        self._variables = {below(self.layer, each): each for each in self.layer.variables}

    def __call__(
        self, values: Mapping[str, tf.Tensor], arguments: Mapping[str, Any]
    ) -> tuple[Any, dict[str, tf.Tensor]]:
        """The outputs, and the variables that the layer assigns; others than ``values`` are 0."""
        pairs = [
            (variable, values.get(name, tf.zeros(variable.shape, variable.dtype)))
            for name, variable in self._variables.items()
        ]
        with keras.StatelessScope(pairs) as scope:
            outputs = self.layer.call(**arguments)
        given = {id(variable): value for variable, value in pairs}
        changed = {
            name: tf.convert_to_tensor(value)
            for name, variable in self._variables.items()
            if (value := scope.get_current_value(variable)) is not None
            and value is not given[id(variable)]
        }
        return outputs, changed


class PartsRule(ShardRule):
    """A rule with smaller layers: the first argument is copied, or sliced along its last axis."""

    @abc.abstractmethod
    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Changes in the configuration of a shard's layer."""

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the smaller layers."""
        group, (name, given), *more = call.group, *call.arguments.items()
        streams = self._stream(call, way, given)
        weights = [call.slices(weight, split) for weight, split in way.splits.items()]
        parts = [self._part(call, way, shard, each.shape) for shard, each in enumerate(streams)]
        assigned: list[str] = []

        def run(shard: int, inputs: tf.Tensor, *values: tf.Tensor) -> Any:
            _keep_mask(given, inputs)
            outputs, changed = parts[shard](
                dict(zip(way.splits, values, strict=True)), {name: inputs, **dict(more)}
            )
            assigned[:] = changed
            return outputs, *changed.values()

        results = group.map(run, streams, *weights)
        for place, weight in enumerate(assigned):
            call.assign(weight, [result[1 + place] for result in results])
        return self.outputs(call, way, [result[0] for result in results])

    def outputs(self, call: LayerCall, way: Way, pieces: Sequence[Any]) -> Any:
        """The layer's outputs from those of the shards: here, they are joined."""
        return call.group.join(pieces)

    def _stream(self, call: LayerCall, way: Way, tensor: Any) -> Sequence[tf.Tensor]:
        if way.name == "columns":
            return call.group.copies(tensor)
        # As long as those of the first weight.
        first = next(iter(way.splits.values()))
        return call.group.slices(tensor, first.sizes)

    def _part(self, call: LayerCall, way: Way, shard: int, shape: Any) -> Part:
        def make() -> Part:
            return Part(call.kind, call.layer, self.changes(call.layer, way, shard), shape)

        return call.part(way, shard, make)


class SlicesRule(ShardRule):
    """A rule by which each shard calls the layer itself, with slices of its weights.

    Weights that are not sliced are copied. The random layers inside draw for the whole layer.
    """

    def argument(self, call: LayerCall, way: Way, name: str) -> Sequence[tf.Tensor]:
        """A tensor of floats, but no mask, for each shard: here, copies."""
        return call.group.copies(call.arguments[name])

    def changes(self, layer: Any, way: Way, shard: int) -> list[tuple[Any, Mapping[str, Any]]]:
        """Layers, and attributes that they have while a shard calls the layer."""
        return []

    def of_first(self, layer: Any) -> Sequence[str]:
        """Weights that the first shard adds to its part of a sum; for the others, they are 0."""
        return ()

    def drawn(self, layer: Any, way: Way) -> Callable[[Any], Split | None]:
        """A function: how an input of a random layer inside is divided; None: it is whole."""
        return lambda inputs: None

    @abc.abstractmethod
    def outputs(self, call: LayerCall, way: Way, place: int, pieces: Sequence[tf.Tensor]) -> Any:
        """An output of the layer from those of the shards; ``place``: among the outputs."""

    def run(self, call: LayerCall, way: Way) -> Any:
        """Calls the layer for each shard."""
        group, layer, given = call.group, call.layer, call.arguments
        names = [name for name, value in given.items() if _is_stream(name, value)]
        streams = [self.argument(call, way, name) for name in names]
        weights = [name for name, each in call.variables.items() if "float" in each.dtype]
        streams += [self._weight(call, way, name) for name in weights]
        state = {
            id(each): tf.convert_to_tensor(each)
            for name, each in call.variables.items()
            if name not in weights
        }
        drawn = self.drawn(layer, way)
        form: list[Any] = []
        with _counted(layer) as draws:

            def run(shard: int, *tensors: tf.Tensor) -> Any:
                inputs, values = tensors[: len(names)], tensors[len(names) :]
                for name, tensor in zip(names, inputs, strict=True):
                    _keep_mask(given[name], tensor)
                scope = keras.StatelessScope()
                # Not as an argument, whose shapes Keras would check.
                scope.state_mapping |= state
                for name, value in zip(weights, values, strict=True):
                    scope.state_mapping[id(call.variable(name))] = value
                draws.counts = shard == 0
                changes = self.changes(layer, way, shard)
                with scope, changed(changes), _drawing(layer, drawn, shard):
                    outputs = call.own(**{**given, **dict(zip(names, inputs, strict=True))})
                form[:] = [tf.nest.map_structure(lambda each: each is not None, outputs)]
                return tuple(each for each in tf.nest.flatten(outputs) if each is not None)

            results = group.map(run, *streams)
        draws.repeat()
        whole = [
            self.outputs(call, way, place, pieces)
            for place, pieces in enumerate(zip(*results, strict=True))
        ]
        rest = iter(whole)
        return tf.nest.map_structure(lambda is_there: next(rest) if is_there else None, form[0])

    def _weight(self, call: LayerCall, way: Way, name: str) -> Sequence[tf.Tensor]:
        if name in way.splits:
            return call.slices(name, way.splits[name])
        value = tf.convert_to_tensor(call.variable(name))
        if name not in self.of_first(call.layer):
            return call.group.copies(value)
        return [value, *[tf.zeros(value.shape, value.dtype)] * (call.group.count - 1)]


def _drawing(
    layer: Any, drawn: Callable[[Any], Split | None], shard: int
) -> contextlib.AbstractContextManager[None]:
    """In the block, the random layers inside draw what one device would draw."""

    def wrap(inner: Any, own: Callable[..., Any]) -> Callable[..., Any]:
        def drop(inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
            split = drawn(inputs) if training and inner.rate else None
            if split is None:
                return own(inputs, training=training)
            shape = tf.unstack(tf.shape(inputs))
            shape[split.axis] = sum(split.sizes)
            factors = own(tf.ones(tf.stack(shape), inputs.dtype), training=True)
            return inputs * split.cut(factors, shard)

        return drop

    inside = [each for _, each in walk(layer) if isinstance(each, keras.layers.Dropout)]
    return intercepted(inside, wrap)


def _is_stream(name: str, value: Any) -> bool:
    return tf.is_tensor(value) and value.dtype.is_floating and "mask" not in name


@contextlib.contextmanager
def changed(changes: Sequence[tuple[Any, Mapping[str, Any]]]) -> Iterator[None]:
    """In the block, objects have other attributes, of which Keras knows nothing."""
    before = [(vars(each), dict(vars(each)), list(own)) for each, own in changes]
    try:
        for each, own in changes:
            vars(each).update(own)
        yield
    finally:
        for now, known, names in before:
            for name in names:
                if name in known:
                    now[name] = known[name]
                else:
                    del now[name]


class _Draws:
    """Counts the seeds that a layer draws in the first shard's call."""

    def __init__(self) -> None:
        self.counts = False
        self.generators: list[Any] = []

    def next_of(self, generator: Any) -> Callable[..., Any]:
        """The generator's ``next``, counted."""
        own = generator.next

        def next_seed(*args: Any, **kwargs: Any) -> Any:
            if self.counts:
                self.generators.append(generator)
            return own(*args, **kwargs)

        return next_seed

    def repeat(self) -> None:
        """Draws as often outside of the calls, whose generators do not keep their state."""
        for generator in self.generators:
            generator.next()


@contextlib.contextmanager
def _counted(layer: Any) -> Iterator[_Draws]:
    draws = _Draws()
    layers = [layer, *(inner for _, inner in walk(layer))]
    generators = [each for inner in layers for each in inner._seed_generators]
    with changed([(each, {"next": draws.next_of(each)}) for each in generators]):
        yield draws


def _without_foreign(layer: keras.Layer) -> contextlib.AbstractContextManager[None]:
    """In the block, a layer has no objects that a user may have written without ``get_config``.

    The engines compute regularizers and constraints from the layer's own weights.
    """
    linear = keras.activations.linear
    plain = {
        name: linear if name == "activation" else None
        for name, value in vars(layer).items()
        if name.endswith(("_regularizer", "_constraint", "_initializer"))
        or (name == "activation" and not is_elementwise(value))
    }
    return changed([(layer, plain)])


def _keep_mask(source: Any, copy: Any) -> None:
    """Keras keeps a mask as an attribute of the tensor."""
    mask = getattr(source, "_keras_mask", None)
    if mask is not None:
        copy._keras_mask = mask


class LinearRule(PartsRule):
    """A layer that multiplies by a kernel, adds a bias, and applies an activation.

    By rows if its inputs are divided already, as after a layer that is split by columns; otherwise
    by columns.
    """

    @abc.abstractmethod
    def axes(self, layer: Any) -> tuple[int | None, int | None]:
        """The axes of ``kernel`` that rows and columns divide; None: they cannot."""

    @abc.abstractmethod
    def size(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """Changes that make the configuration of a shard's layer smaller, by columns."""

    def obstacle(self, layer: Any, count: int) -> str:
        """Adapters, 8-bit kernels, and too few features."""
        small = self._kernel(layer, count) == [None, None]
        return adapted(layer) or (f"has fewer than {count} features" if small else "")

    def choose(self, call: LayerCall) -> Way | None:
        """By rows after columns."""
        layer = call.layer
        rows, columns = self._kernel(layer, call.group.count)
        if rows is not None and (columns is None or call.is_divided):
            return Way("rows", {"kernel": rows})
        if columns is None:
            return None
        splits = {"kernel": columns}
        if _has_bias(layer):
            splits["bias"] = Split(len(layer.bias.shape) - 1, columns.sizes)
        return Way("columns", splits)

    def _kernel(self, layer: Any, count: int) -> list[Split | None]:
        """Slices of ``kernel`` by rows, and by columns; None: there are too few features."""
        shape = layer.kernel.shape
        return [
            None if axis is None or shape[axis] < count else Split(axis, even(shape[axis], count))
            for axis in self.axes(layer)
        ]

    def changes(self, layer: Any, way: Way, shard: int) -> Mapping[str, Any]:
        """A shard's part is linear, if the activation needs the whole output."""
        whole = way.name == "rows" or not is_elementwise(layer.activation)
        linear = {"activation": None} if whole else {}
        if way.name == "rows":
            return {**linear, **self.without_bias(layer)}
        return {**linear, **self.size(layer, way, shard)}

    def without_bias(self, layer: Any) -> Mapping[str, Any]:
        """Changes that take the bias out of the configuration."""
        return {"use_bias": False}

    def outputs(self, call: LayerCall, way: Way, pieces: Sequence[Any]) -> Any:
        """The first device does what the shards could not: see :meth:`changes`."""
        layer = call.layer
        if way.name == "rows":
            outputs = call.group.total(pieces)
            if _has_bias(layer):
                outputs += tf.cast(tf.convert_to_tensor(layer.bias), outputs.dtype)
        else:
            outputs = super().outputs(call, way, pieces)
            if is_elementwise(layer.activation):
                return outputs
        return outputs if layer.activation is None else layer.activation(outputs)


def _has_bias(layer: Any) -> bool:
    return getattr(layer, "bias", None) is not None
