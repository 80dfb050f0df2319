"""Calls of a layer that the parts of a batch share: each is traced once.

A part's call takes the weights of its layer as one tensor, and returns their gradients as one. So
neither the graph nor the time to make it grows by the layers times the parts.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend

# Not public; see the pins.
from tensorflow.python.eager import record

from stagecraft.parallel_model import draws, pinned_calls
from stagecraft.parallel_model.pinned_calls import (
    Call,
    Context,
    Nest,
    Pinned,
    Results,
    Scope,
    Sliced,
)
from stagecraft.trainer_module.pipeline_parallel import remat as recomputation
from stagecraft.trainer_module.pipeline_parallel.shared_function import Group, Packed, Shared
from stagecraft.trainer_module.tensor_parallel.split import Split


class UnsharedError(Exception):
    """A call computes by more than its arguments and the weights of its layer."""


class PackedWeights:
    """The weights of layers, packed for each part of a batch.

    A tape sees them between the model's variables and the calls of the parts.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        splits: Mapping[int, Split],
        total: Callable[[Sequence[keras.Variable], Sequence[Sequence[Any]], int], list[Any]],
        records: bool,
    ):
        """Packs nothing yet.

        Args:
            replicas: of each part.
            splits: id of a variable -> how shards divide it.
            total: of variables, for each the gradients from some devices, each of them a list of
                those of its slices, and a number: the sums where the variables are. All processes
                use the same number for the same variables.
            records: whether anybody asks for gradients.
        """
        self.records = records and record.could_possibly_record()
        self.replicas, self.splits, self._total = replicas, splits, total
        self._packed: dict[Any, list[Packed]] = {}
        self._calls: collections.Counter[Any] = collections.Counter()
        self._gradients: dict[int, Packed] = {}
        """Id of a packed weight -> how its gradient is packed."""
        self._turns: collections.Counter[Any] = collections.Counter()
        self._last: dict[Any, tf.Tensor] = {}

    @contextlib.contextmanager
    def in_turn(self, kind: str, caller: Any, part: int) -> Iterator[list[Any]]:
        """In the block, a call waits for that of the part before on the same device.

        What a pass needs for itself is there once for each device, not for each part.

        Args:
            kind: of the call, such as ``backward``.

        Yields:
            A list that gets the results of the call.
        """
        self._turns[kind, id(caller), part] += 1
        key = kind, id(caller), self.replicas[part], self._turns[kind, id(caller), part]
        last, made = self._last.get(key), list[Any]()
        if last is not None and last.graph is not tf.compat.v1.get_default_graph():
            last = None  # of a branch
        with tf.control_dependencies([] if last is None else [last]):
            yield made
        if made:
            self._last[key] = made[0]

    def take(
        self, variables: Sequence[keras.Variable], part: int, devices: Sequence[Sequence[str]]
    ) -> Packed:
        """The weights for the next call of a layer by a part.

        Args:
            devices: of each replica, those of the shards of the stage.
        """
        own = tuple(map(id, variables))
        self._calls[own, part] += 1
        key = own, self._calls[own, part]
        if key not in self._packed:
            self._packed[key] = self._pack(variables, devices)
        return self._packed[key][part]

    def trained(
        self, variables: Sequence[keras.Variable], packed: Packed, trained: Collection[int]
    ) -> list[Group]:
        """The places of those packed values that have a gradient."""
        has_gradient: list[bool] = []
        for variable in variables:
            split = self.splits.get(id(variable))
            has = id(variable) in trained and tf.as_dtype(variable.dtype).is_floating
            has_gradient += [has] * (1 if split is None else len(split.sizes))
        return [
            (device, [place for place in places if has_gradient[place]])
            for device, places in packed.groups
        ]

    def given_back(self, weights: Packed, gradients: Packed) -> list[tf.Tensor | None]:
        """Gradients of packed weights, as the tape takes them."""
        groups = [
            (device, [place for place in places if place in gradients.specs])
            for device, places in weights.groups
        ]
        packs = gradients.split(groups)
        for variant, pack in zip(weights.variants, packs, strict=True):
            self._gradients[id(variant)] = pack
        return [pack.variants[0] if pack.variants else None for pack in packs]

    def _pack(
        self, variables: Sequence[keras.Variable], devices: Sequence[Sequence[str]]
    ) -> list[Packed]:
        with backend.AutocastScope(None):
            values = [tf.convert_to_tensor(variable.value) for variable in variables]
        with record.stop_recording():
            packs = {}
            for replica in dict.fromkeys(self.replicas):
                with tf.device(devices[replica][0]):
                    packs[replica] = self._of_replica(variables, values, devices[replica])
            of_parts = []
            for replica in self.replicas:
                with tf.device(devices[replica][0]):
                    copies = list(map(tf.identity, packs[replica].variants))
                of_parts.append(packs[replica]._replace(variants=copies))
        if not self.records:
            return of_parts
        number = 1 + len(self._packed)
        taken = [variable for variable in variables if tf.as_dtype(variable.dtype).is_floating]
        sources = [x for x, variable in zip(values, variables, strict=True) if x.dtype.is_floating]

        def backward(*incoming: tf.Tensor) -> list[Any]:
            found = self._arrived(of_parts, incoming, devices)
            by_variable = self._of_variables(variables, found, devices)
            return self._total(taken, [by_variable[id(variable)] for variable in taken], number)

        handles = [variant for pack in of_parts for variant in pack.variants]
        record.record_operation("Spread", handles, sources, backward)
        return of_parts

    def _of_replica(
        self, variables: Sequence[keras.Variable], values: Sequence[Any], devices: Sequence[str]
    ) -> Packed:
        flat: list[tf.Tensor] = []
        places: dict[str, list[int]] = collections.defaultdict(list)
        for variable, value in zip(variables, values, strict=True):
            split = self.splits.get(id(variable))
            if split is None:
                places[""].append(len(flat))
                flat.append(value)
                continue
            for shard in range(len(split.sizes)):
                places[devices[shard]].append(len(flat))
                with tf.device(value.device):
                    flat.append(split.cut(value, shard))
        return Packed.of(flat, list(places.items()))

    def _arrived(
        self, packs: Sequence[Packed], incoming: Sequence[tf.Tensor], devices: Any
    ) -> dict[tuple[int, int], list[Any]]:
        """Replica and place -> the gradients of the parts."""
        found: dict[tuple[int, int], list[Any]] = collections.defaultdict(list)
        rest = iter(incoming)
        for replica, pack in zip(self.replicas, packs, strict=True):
            for handle in pack.variants:
                variant = next(rest)
                if variant.op.type == "ZerosLike":  # what a tape takes for none
                    continue
                with tf.device(devices[replica][0]):
                    own = self._gradients[id(handle)]._replace(variants=[variant]).by_place()
                for place, gradient in own.items():
                    if gradient is not None:
                        found[replica, place].append(gradient)
        return found

    def _of_variables(
        self,
        variables: Sequence[keras.Variable],
        found: Mapping[tuple[int, int], list[Any]],
        devices: Sequence[Sequence[str]],
    ) -> dict[int, list[list[Any]]]:
        """Id of a variable -> for each replica, the sums of its slices."""
        result: dict[int, list[list[Any]]] = {}
        place = 0
        for variable in variables:
            split = self.splits.get(id(variable))
            count = 1 if split is None else len(split.sizes)
            result[id(variable)] = []
            for replica in dict.fromkeys(self.replicas):
                sums = []
                for shard in range(count):
                    own = found.get((replica, place + shard))
                    with tf.device(devices[replica][shard]):
                        sums.append(pinned_calls.total(own) if own else None)
                result[id(variable)].append(sums)
            place += count
        return result


class Traces:
    """Functions of a layer's calls."""

    def __init__(self, layer: Any, model: Any, device: str, jit: bool):
        """Makes no trace yet.

        Args:
            layer: whose variables the functions take.
            model: whose variables they may need.
            device: one of those that call the layer.
            jit: XLA compiles them.
        """
        self._variables = _unique(getattr(layer, "variables", ()))
        self._of_model = {id(variable): variable for variable in model.variables}
        self._device_type = str(tf.DeviceSpec.from_string(device).device_type)
        self._jit = jit
        self._known: dict[Any, _Function] = {}

    def shared(
        self,
        call: Call,
        scope: Scope,
        weights: PackedWeights,
        part: int,
        devices: Sequence[Sequence[str]],
        remat: bool,
    ) -> Call:
        """A function that calls the layer, in the block of a scope, for a part of a batch.

        Args:
            call: of the layer.
            scope: gets what the call assigns and adds.
            weights: of all parts.
            devices: of each replica, those of the shards of the stage.
            remat: recompute the call for the gradient.
        """
        device = devices[weights.replicas[part]][0]

        def run(*args: Any, **kwargs: Any) -> Any:
            nest, context, rows = Nest((args, kwargs)), Context(), draws.current()
            if nest.key is None:
                raise UnsharedError
            find = functools.partial(self._find, call, nest, context, scope.trained, weights.splits)
            with tf.device(device):
                with record.stop_recording():
                    copies = list(map(tf.identity, nest.tensors))
                while True:
                    variables = list(self._variables)
                    function, packed = find(variables), weights.take(variables, part, devices)
                    own = set(map(id, variables))
                    earlier = {key: each for key, (_, each) in scope.updates.items() if key in own}
                    given = rows, copies, earlier
                    trace = function.shared.trace(packed, *given)
                    others = [key for key in function.unknown if key in self._of_model]
                    self._variables = _unique([*variables, *map(self._of_model.get, others)])
                    if len(self._variables) == len(variables):
                        break  # else, it needs variables of other layers
                if not trace.is_closed or function.assigns_others:
                    raise UnsharedError
                if not scope.trained.isdisjoint(earlier):
                    raise UnsharedError
                keep = weights.records and not remat
                with weights.in_turn("forward", self, part) as passed:
                    made = function.shared(packed, *given, keep=keep)
                    passed += made.results
            results = function.results

            def backward(*upstream: tf.Tensor | None) -> list[Any]:
                if record.could_possibly_record():
                    raise pinned_calls.SecondDerivativeError
                with tf.device(device):
                    arrived = [
                        None if x is None else tf.identity(tf.convert_to_tensor(x))
                        for x in upstream
                    ]
                    unused = frozenset(k for k in results.differentiable if arrived[k] is None)
                    floats = [k for k, each in enumerate(copies) if each.dtype.is_floating]
                    first = 0 if rows is None else len(rows)
                    trained = weights.trained(variables, packed, scope.trained)
                    with weights.in_turn("backward", self, part) as passed:
                        used, again = function, made
                        if remat or unused:
                            # A function takes zeros for what nobody uses. The weights behind it
                            # would then seem to have a gradient, and zero times infinity is NaN.
                            known = recomputation.arrival(arrived)
                            late = [recomputation.after(known, each) for each in copies]
                            with context.restored():
                                used = find(variables, unused)
                                again = used.shared(packed, rows, late, earlier)
                        incoming = [arrived[k] for k in used.passing]
                        gradients = again.gradients(incoming, trained, [first + k for k in floats])
                        passed += [*gradients.weights.variants, *gradients.arguments]
                of_copies = dict(zip(floats, gradients.arguments, strict=True))
                return [
                    *map(of_copies.get, range(len(copies))),
                    *weights.given_back(packed, gradients.weights),
                ]

            outputs = made.results
            if weights.records:
                sources = [*nest.tensors, *packed.variants]
                outputs = pinned_calls.recorded("Pinned", outputs, sources, backward)
            return results.restored(outputs, scope)

        return run

    def _find(
        self,
        call: Call,
        nest: Nest,
        context: Context,
        trained: frozenset[int],
        splits: Mapping[int, Split],
        variables: Sequence[keras.Variable],
        unused: frozenset[int] = frozenset(),
    ) -> _Function:
        """The function for such arguments."""
        key = nest.key, context.key, unused, tuple(map(id, variables))
        if key not in self._known:
            arguments = nest.without_tensors()

            def inside(values: Sequence[tf.Tensor], assigned: Any) -> tuple[_Inside, Nest]:
                return _Inside(_by_key(variables, splits, values) | assigned, trained), arguments

            known = frozenset(self._of_model)
            self._known[key] = _Function(call, inside, unused, known, self._device_type, self._jit)
        return self._known[key]


class _Function:
    """A layer's call, as a function."""

    results: Results
    """The results of the trace."""

    def __init__(
        self,
        call: Call,
        inside: Callable[[Sequence[tf.Tensor], Any], tuple[_Inside, Nest]],
        unused: frozenset[int],
        known: frozenset[int],
        device_type: str,
        jit: bool,
    ):
        """Traces nothing yet; ``known``: ids of the model's variables."""
        self._call, self._inside, self._unused, self._of_model = call, inside, unused, known
        self.shared = Shared(self._compute, device_type, jit=jit)
        self.passing: list[int] = []
        """Places of the results through which gradients go."""
        self.unknown: list[int] = []
        """Ids of other variables that it reads."""
        self.assigns_others = False
        """Whether it assigns variables that are not the model's, such as a generator of numbers
        that an activation draws with."""

    def _compute(
        self,
        values: Sequence[tf.Tensor],
        rows: draws.Rows | None,
        tensors: Sequence[tf.Tensor],
        assigned: dict[int, tf.Tensor],
    ) -> tuple[list[tf.Tensor], list[int]]:
        scope, nest = self._inside(values, assigned)
        args, kwargs = nest.restored(tensors)
        with scope, draws.of_rows(rows):
            self.results = Results(self._call(*args, **kwargs), scope)
        self.unknown = list(scope.unknown)
        self.assigns_others = not self._of_model.issuperset(scope.updates)
        self.passing = [k for k in self.results.differentiable if k not in self._unused]
        return self.results.tensors, self.passing


def _by_key(
    variables: Sequence[keras.Variable], splits: Mapping[int, Split], values: Sequence[tf.Tensor]
) -> dict[int, pinned_calls.Value]:
    """Id of a variable -> its value, from values as :class:`PackedWeights` packs them."""
    rest = iter(values)
    found: dict[int, pinned_calls.Value] = {}
    for variable in variables:
        split = splits.get(id(variable))
        if split is None:
            found[id(variable)] = next(rest)
        else:
            found[id(variable)] = Sliced([next(rest) for _ in split.sizes], split.axis)
    return found


class _Inside(Pinned):
    """The scope of a call inside of its function."""

    def __init__(self, values: dict[int, pinned_calls.Value], trained: frozenset[int]):
        super().__init__(Scope(values, trained), None, {})
        self._given = values
        self.unknown: dict[int, None] = {}
        """Ids of the variables that the call reads besides."""

    def copy(self, key: int) -> pinned_calls.Value | None:
        """The value of a variable; None: the function does not have it."""
        if key not in self._given:
            self.unknown[key] = None
        return self._given.get(key)


def _unique(variables: Sequence[Any]) -> list[Any]:
    return list({id(each): each for each in variables}.values())
