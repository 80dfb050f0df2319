"""Functions that a graph contains once, however often they are called.

TensorFlow inlines functions before it runs a graph. A step of M microbatches would then contain
each op of a stage M times, and each optimizer pass of TensorFlow would copy all of them. A call
that is not inlined still has an edge for each weight and for each activation that its gradient
needs, and TensorFlow reads the whole function for each call. So a call here has one edge for all
weights and one for all activations, and TensorFlow reads the function once.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import backprop_util, record
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import func_graph

Group = tuple[str, Sequence[int]]
"""A device, and the places of the tensors on it; no device: that of the block."""

_UNSEARCHED = tf.compat.v1.AttrValue(func={"name": "RefIdentity"})
"""Says that an op has to do with variables of TensorFlow 1.

Before XLA compiles a graph, TensorFlow looks for such variables in each function that a graph
calls, twice for each call (``xla_cluster_util.cc``, ``GetNodesRelatedToRefVariables``), even if
nothing is compiled. It skips what follows an op that has to do with them.
"""


class Packed(NamedTuple):
    """Tensors, as one tensor for each device; nothing is copied."""

    variants: list[tf.Tensor]
    """One for each group that has tensors."""
    groups: Sequence[Group]
    specs: dict[int, Any]
    """By place: the ``tf.TypeSpec`` of a tensor or of ``tf.IndexedSlices``, or None for None."""

    @staticmethod
    def of(values: Mapping[int, Any] | Sequence[Any], groups: Sequence[Group]) -> Packed:
        """Packs those values whose places are in a group."""
        groups = [(device, list(places)) for device, places in groups if places]
        variants: list[tf.Tensor] = []
        specs: dict[int, Any] = {}
        for device, places in groups:
            with _on(device):
                own = {place: _tensor(values[place]) for place in places}
                specs.update((place, _spec(value)) for place, value in own.items())
                components = _components(list(own.values()))
                if not components:
                    continue
                types = [each.dtype.as_datatype_enum for each in components]
                attributes = {
                    "Toutput_types": tf.compat.v1.AttrValue(list={"type": types}),
                    "_unsearched": _UNSEARCHED,
                }
                # tf.raw_ops takes no such attribute. The op has a kernel for each device.
                op = tf.compat.v1.get_default_graph().create_op(
                    "OptionalFromValue", components, [tf.variant], attrs=attributes
                )
            variants.append(op.outputs[0])
        return Packed(variants, groups, specs)

    def split(self, groups: Sequence[Group]) -> list[Packed]:
        """A pack for each of the groups that this one was made of, also for empty ones."""
        rest = iter(self.variants)
        packs = []
        for device, places in groups:
            specs = {place: self.specs[place] for place in places}
            variants = [next(rest)] if _components([*specs.values()]) else []
            packs.append(Packed(variants, [(device, places)] if places else [], specs))
        return packs

    def by_place(self) -> dict[int, Any]:
        """Place -> value."""
        found: dict[int, Any] = {}
        rest = iter(self.variants)
        for device, places in self.groups:
            specs = [self.specs[place] for place in places]
            of_tensors = _components(specs)
            with _on(device):
                tensors = (
                    tf.raw_ops.OptionalGetValue(
                        optional=next(rest),
                        output_types=[each.dtype for each in of_tensors],
                        output_shapes=[each.shape for each in of_tensors],
                    )
                    if of_tensors
                    else []
                )
            unpacked = iter(tensors)
            for place, spec in zip(places, specs, strict=True):
                parts = [next(unpacked) for _ in _components([spec])]
                found[place] = (
                    None
                    if spec is None
                    else tf.nest.pack_sequence_as(spec, parts, expand_composites=True)
                )
        return found

    def values(self) -> list[Any]:
        """The values, in the order of their places."""
        return [value for _, value in sorted(self.by_place().items())]


def _tensor(value: Any) -> Any:
    is_tensor = value is None or isinstance(value, tf.IndexedSlices)
    return value if is_tensor else tf.convert_to_tensor(value)


def _spec(value: Any) -> Any:
    return None if value is None else tf.type_spec_from_value(value)


def _components(values: Sequence[Any]) -> list[Any]:
    flat = tf.nest.flatten(values, expand_composites=True)
    return [each for each in flat if each is not None]


class Gradients(NamedTuple):
    """The gradients of a call."""

    weights: Packed
    has_gradient: list[bool]
    """By the place of a weight."""
    arguments: list[Any]
    """Of the wanted arguments; None where there is none."""


class Call(NamedTuple):
    """A call that the graph contains."""

    results: Any
    kept: Packed | None
    """Activations that the gradient needs; None: nobody asks for it."""
    trace: _Trace

    def gradients(
        self, incoming: Sequence[tf.Tensor], groups: Sequence[Group], wanted: Sequence[int]
    ) -> Gradients:
        """The gradients of some weights and arguments.

        Args:
            incoming: of the results that get one.
            groups: the places of the weights.
            wanted: the places of the arguments, flat.
        """
        assert self.kept is not None
        return self.trace.gradients(self.kept, incoming, groups, wanted)


class Shared:
    """A pure function of weights and arguments, and its gradient, for any number of calls."""

    def __init__(
        self,
        function: Callable[..., tuple[Any, Sequence[int]]],
        device_type: str,
        *,
        fills: bool = False,
        jit: bool = False,
        scope: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ):
        """Traces nothing yet.

        Args:
            function: of a list of weights and of nested arguments. It returns nested tensors, and
                the places of those that get a gradient, flat. It reads no ``tf.Variable``.
            device_type: of the devices that call it, such as ``GPU``.
            fills: the gradients of weights are dense, zeros where there is none; otherwise sparse
                ones stay ``tf.IndexedSlices``, and None where there is none.
            jit: XLA compiles the function and its gradient.
            scope: of the traces of both.
        """
        self._function = function
        self._settings = device_type, fills, jit, scope
        self._traces: dict[str, _Trace] = {}

    def __call__(self, weights: Packed, *arguments: Any, keep: bool = True) -> Call:
        """Calls the function; ``keep``: what the gradient needs."""
        return self.trace(weights, *arguments).call(weights, _components(arguments), keep)

    def trace(self, weights: Packed, *arguments: Any) -> _Trace:
        """The trace for arguments of such shapes."""
        structure = tf.nest.map_structure(lambda each: each is not None, arguments)
        shapes = [(each.shape, each.dtype) for each in _components(arguments)]
        key = repr((structure, shapes, weights.groups))
        if key not in self._traces:
            self._traces[key] = _Trace(self._function, weights, arguments, *self._settings)
        return self._traces[key]


class _Trace:
    """The functions for arguments of some shapes."""

    def __init__(
        self,
        function: Callable[..., Any],
        weights: Packed,
        arguments: Any,
        device_type: str,
        fills: bool,
        jit: bool,
        scope: Callable[[], contextlib.AbstractContextManager[Any]],
    ):
        self._weights, self.fills, self._jit, self._scope = weights, fills, jit, scope
        self.specs = [spec for _, spec in sorted(weights.specs.items())]
        # TensorFlow would put the ops that pack on the CPU. Which of the GPUs, a call decides.
        self.packing = functools.partial(tf.device, f"/device:{device_type}:*")

        def flat(own: Sequence[tf.Tensor], given: Any) -> list[tf.Tensor]:
            self._sources = _components((own, given))
            # Persistent: after an error, TensorFlow traces the gradient again.
            tape = tf.GradientTape(persistent=True, watch_accessed_variables=False)
            with tape as self._tape, scope():
                self._tape.watch(list(filter(backprop_util.IsTrainable, self._sources)))
                self.results, places = function(own, *given)
                made = tf.nest.flatten(self.results)
            rest = [place for place in range(len(made)) if place not in places]
            self._order, self._passing = [*places, *rest], len(places)
            self._targets = [made[place] for place in places]
            return [made[place] for place in self._order]

        traced = tf.function(flat, autograph=False, jit_compile=jit or None)
        self._concrete = traced.get_concrete_function(self.specs, arguments)
        self._number = len(self._concrete.outputs)
        self._keeping, self._plain = Repeated(self._keep), Repeated(self._run)
        self._gradients: dict[str, _Gradient] = {}

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing else from the graph around it."""
        return not any(map(tf.is_symbolic_tensor, self._concrete.captured_inputs))

    def call(self, weights: Packed, arguments: Sequence[tf.Tensor], keep: bool) -> Call:
        """Calls the function with flat arguments."""
        made = (self._keeping if keep else self._plain)([*weights.variants, *arguments])
        pairs = zip(self._order, made, strict=False)
        flat = [each for _, each in sorted(pairs, key=lambda pair: pair[0])]
        kept = self._kept._replace(variants=list(made[self._number :])) if keep else None
        return Call(tf.nest.pack_sequence_as(self.results, flat), kept, self)

    def _inputs(self, given: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        count = len(self._weights.variants)
        with self.packing():
            weights = self._weights._replace(variants=list(given[:count])).values()
        return [*weights, *given[count:], *self._concrete.captured_inputs]

    def _run(self, *given: tf.Tensor) -> list[tf.Tensor]:
        # Not public: the function itself; a call of the concrete one prepares its gradient.
        inference = self._concrete._delayed_rewrite_functions.forward()
        return list(inference.call_flat(*self._inputs(given)))

    def _keep(self, *given: tf.Tensor) -> list[tf.Tensor]:
        forward, self.backward = self._pair
        results = self._concrete.graph.outputs
        places = {id(each): place for place, each in enumerate(results)}
        self.captured = [places.get(id(each)) for each in self.backward.captured_inputs]
        """Places, among the results, of the tensors that the gradient takes; None: another one."""
        groups = collections.defaultdict(list)
        for place in self.captured:
            if place is not None:
                groups[results[place].device].append(place)
        made = forward.call_flat(*self._inputs(given))
        with self.packing():
            self._kept = Packed.of(made, list(groups.items()))
        return [*made[: self._number], *self._kept.variants]

    @functools.cached_property
    def _pair(self) -> tuple[Any, Any]:
        """The function that also returns what its gradient takes, and the gradient.

        As TensorFlow makes them (``_DelayedRewriteGradientFunctions`` in its
        ``concrete_function.py``), but from the tape of the trace, which has the gradients that
        layers record themselves. A gradient that needs the shape of a value takes the shape alone.
        """
        functions: Any = self._concrete._delayed_rewrite_functions
        graph: Any = functions._func_graph
        outputs = [each for each in self._targets if backprop_util.IsTrainable(each)]
        sources = list(filter(backprop_util.IsTrainable, self._sources))

        def gradient(*incoming: tf.Tensor) -> Any:
            with tf.device(None), self._scope():
                found = iter(self._tape.gradient(outputs, sources, list(incoming)))
            return [
                next(found) if backprop_util.IsTrainable(each) else None for each in self._sources
            ]

        with graph.as_default():
            backward: Any = func_graph.FuncGraph(f"__backward_{graph.name}")
            func_graph.func_graph_from_py_func(
                backward.name,
                gradient,
                args=[],
                kwargs={},
                signature=[tf.TensorSpec(each.shape, each.dtype) for each in outputs],
                func_graph=backward,
            )
            if not self._jit:  # XLA refuses the placeholders that nothing uses any more
                _take_shapes(graph, backward)
            known = set(map(id, graph.outputs))
            symbolic = filter(tf.is_symbolic_tensor, backward.external_captures)
            graph.outputs += [
                each for each in symbolic if each.graph is graph and id(each) not in known
            ]
            pair: tuple[Any, Any] = concrete_function._create_forward_backward_with_graph(
                functions._attrs, graph, backward
            )
        del self._tape, self._targets
        return pair

    def gradients(
        self,
        kept: Packed,
        incoming: Sequence[tf.Tensor],
        groups: Sequence[Group],
        wanted: Sequence[int],
    ) -> Gradients:
        """See :class:`Call`."""
        key = repr((groups, wanted))
        if key not in self._gradients:
            self._gradients[key] = _Gradient(self, kept, groups, wanted)
        return self._gradients[key](kept, incoming)


def _take_shapes(graph: Any, backward: Any) -> None:
    """Makes a gradient take the shapes of those values of which it needs nothing else."""
    for value, inside in list(backward.captures):
        uses = inside.consumers()
        is_own = tf.is_symbolic_tensor(value) and value.graph is graph
        if not is_own or {op.type for op in uses} != {"Shape"}:
            continue
        for dtype in {op.outputs[0].dtype for op in uses}:
            shape = backward.capture(tf.shape(value, dtype))
            found = [op.outputs[0] for op in uses if op.outputs[0].dtype == dtype]
            for each, consumer in [(x, op) for x in found for op in x.consumers()]:
                for index, given in enumerate(consumer.inputs):
                    if given is each:
                        consumer._update_input(index, shape)
        backward.function_captures.pop(id(value))
        backward.inputs = [each for each in backward.inputs if each is not inside]


class _Gradient:
    """The gradient of a function, for some weights and arguments."""

    def __init__(self, trace: _Trace, kept: Packed, groups: Sequence[Group], wanted: Sequence[int]):
        self._trace, self._kept, self._groups, self._wanted = trace, kept, groups, wanted
        self._call = Repeated(self._run)

    def __call__(self, kept: Packed, incoming: Sequence[tf.Tensor]) -> Gradients:
        made = self._call([*kept.variants, *incoming])
        count = len(self._weights.variants)
        rest = iter(made[count:])
        arguments = [next(rest) if has else None for has in self._has_argument]
        return Gradients(
            self._weights._replace(variants=list(made[:count])), self._has_gradient, arguments
        )

    def _run(self, *given: tf.Tensor) -> list[tf.Tensor]:
        trace, count = self._trace, len(self._kept.variants)
        with trace.packing():
            kept = self._kept._replace(variants=list(given[:count])).by_place()
        captures = zip(trace.captured, trace.backward.captured_inputs, strict=True)
        captured = [other if place is None else kept[place] for place, other in captures]
        # Not public: to give it other tensors than those that it has captured.
        found = trace.backward._call_flat(list(given[count:]), captured)
        own, rest = found[: len(trace.specs)], found[len(trace.specs) :]
        self._has_gradient = [each is not None for each in own]
        with trace.packing():
            own = list(map(_filled, own, trace.specs)) if trace.fills else own
            self._weights = Packed.of(own, self._groups)
        arguments = [rest[place] for place in self._wanted]
        self._has_argument = [each is not None for each in arguments]
        return [
            *self._weights.variants,
            *(tf.convert_to_tensor(each) for each in arguments if each is not None),
        ]


class Repeated:
    """A function of tensors whose calls are not inlined, and which no tape records.

    The ops of a call run on its device, unless the function names another one. TensorFlow optimizes
    and keeps a copy for each device.
    """

    def __init__(self, function: Callable[..., list[tf.Tensor]]):
        """Traces nothing yet.

        Args:
            function: of tensors, whose types and shapes are those of the first call.
        """
        self._function = tf.function(
            function, autograph=False, experimental_attributes={"_noinline": True}
        )
        self._first: Any = weakref.WeakKeyDictionary()
        """Graph -> the name of the first call in it."""

    def __call__(self, tensors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Calls it, in a graph."""
        graph = tf.compat.v1.get_default_graph()
        if graph not in self._first:
            concrete = self._function.get_concrete_function(*tensors)
            with record.stop_recording():  # not while it is traced, which may take gradients
                made: list[tf.Tensor] = concrete(*tensors)
            if made:
                self._first[graph] = made[0].op.name
            return made
        first = graph.get_operation_by_name(self._first[graph])
        attributes = {name: first.node_def.attr[name] for name in first.node_def.attr}
        # Or TensorFlow infers the shapes of all ops of the function.
        attributes["_disable_call_shape_inference"] = tf.compat.v1.AttrValue(b=True)
        inputs = [*tensors, *first.inputs[len(tensors) :]]
        types = [each.dtype for each in first.outputs]
        with record.stop_recording():
            op = graph.create_op(first.type, inputs, types, attrs=attributes)
        for one, before in zip(op.outputs, first.outputs, strict=True):
            one.set_shape(before.shape)
        return list(op.outputs)


def _filled(gradient: Any, spec: tf.TensorSpec) -> tf.Tensor:
    if gradient is None:
        return tf.zeros(spec.shape, spec.dtype)
    dense = tf.convert_to_tensor(gradient)
    dense.set_shape(spec.shape)  # XLA loses the shape of an embedding's gradient
    return dense


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    return tf.device(device) if device else contextlib.nullcontext()
