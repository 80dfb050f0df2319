"""The devices of a stage's shards during a pass, and the tensors that are divided over them.

The first device computes everything that is not split. It sends inputs to the others, and adds up
or joins what they return. Each device computes an activation of an input that it has: nobody sends
the tensor before and the tensor after it.

A divided tensor is known by the whole tensor, which the first device would join from the pieces:
layers without a rule take the whole tensor. TensorFlow computes it only if something uses it,
because a graph omits ops without consumers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import tensorflow as tf

from stagecraft.trainer_module.models.layers import random_state

Scope = Callable[[], contextlib.AbstractContextManager[Any]]
"""Opens the device and the name scope of a shard."""

_UNARY = {"Cast", "Identity", "Relu", "Relu6", "Elu", "Selu", "Sigmoid", "Tanh", "Softplus"}
"""Ops of a graph that treat each entry by itself, and are repeated on copies."""

_ELEMENTWISE = _UNARY | {
    *("AddV2", "Erf", "Exp", "Maximum", "Minimum", "Mul", "Neg", "Pow", "RealDiv", "Sub"),
}
"""Ops that are repeated on the pieces of their inputs; scalar constants are whole. Among them are
those of a gated feed-forward layer."""

ONE_SHARD, ALL_SHARDS = "one_shard_of_a_trace", "all_shards_of_a_trace"
"""Name scopes of :class:`Traced`: of ops of one shard, and of ops that stand for all shards."""


class ShardGroup:
    """The shards of a stage during a pass."""

    def __init__(self, scopes: Sequence[Scope], jit: bool = False):
        """``scopes``: of each shard; ``jit``: XLA compiles each shard's part of a layer."""
        self._scopes, self._jit = scopes, jit
        self._known: dict[int, tuple[tf.Tensor, list[tf.Tensor], int]] = {}
        self._undivided: dict[tuple[int, int], tf.Tensor] = {}
        self._copied: dict[int, tuple[Any, list[tf.Tensor]]] = {}
        self.is_inside = False
        """Whether a shard computes its part of a layer: layers that it calls are not divided."""

    def fresh(self) -> ShardGroup:
        """The same shards, without known tensors: for a function whose gradient is recorded as a
        whole, so that no gradient goes around it."""
        return ShardGroup(self._scopes, self._jit)

    @property
    def count(self) -> int:
        """Number of shards."""
        return len(self._scopes)

    def on(self, shard: int) -> contextlib.AbstractContextManager[Any]:
        """In the block, ops run on a shard's device."""
        return self._scopes[shard]()

    def map(self, function: Callable[..., Any], *arguments: Sequence[tf.Tensor]) -> list[Any]:
        """Calls ``function(shard, *tensors)`` on the device of each shard.

        The gradient is computed there as well: a tape records each call by itself. TensorFlow would
        place the whole backward pass on the device of whoever asks for it.

        Args:
            function: pure; its results are floating-point tensors. It takes no gradient with
                respect to tensors that it captures.
            arguments: a tensor for each shard, on any device.
        """
        state = random_state.current()
        forks = [None, *(state.fork() if state else None for _ in range(1, self.count))]
        results: list[Any] = []
        for shard, tensors in enumerate(zip(*arguments, strict=True)):
            # A tensor that is given twice, as in self-attention, has one copy and one gradient.
            different = {id(tensor): tensor for tensor in tensors}
            places = [[*different].index(id(tensor)) for tensor in tensors]
            run = functools.partial(_placed, function, shard, places)
            with self._scopes[shard](), random_state.forked(forks[shard]), self._inside():
                copies = list(map(tf.identity, different.values()))
                results.append(self._call(run, shard, copies))
        return results

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        before, self.is_inside = self.is_inside, True
        try:
            yield
        finally:
            self.is_inside = before

    def _call(self, function: Callable[..., Any], shard: int, tensors: Sequence[tf.Tensor]) -> Any:
        part = tf.function(function, jit_compile=True, autograph=False) if self._jit else function

        @tf.custom_gradient
        def once(*given: tf.Tensor) -> tuple[Any, Callable[..., list[tf.Tensor | None]]]:
            floats = [each for each in given if each.dtype.is_floating]
            # Persistent: the tape outside may be.
            with tf.GradientTape(True, watch_accessed_variables=False) as tape:
                tape.watch(floats)
                outputs = part(*given)

            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                with (current() or self).on(shard):  # that of the pass back, if it has one
                    incoming = list(map(tf.identity, upstream))
                    found = iter(tape.gradient(tf.nest.flatten(outputs), floats, incoming))
                    return [next(found) if each.dtype.is_floating else None for each in given]

            return outputs, gradient

        return once(*tensors)

    def copies(self, tensor: Any) -> list[tf.Tensor]:
        """The whole tensor for each shard; :meth:`map` copies it to their devices.

        If the shards have copies of what a unary op takes, each computes the op for itself.
        """
        if id(tensor) in self._copied:
            return self._copied[id(tensor)][1]
        source = self._copied_source(tensor)
        if source is None:
            made = self._send(tensor)
        else:
            made = self._everywhere(_again(tensor.op), self.copies(source))
        if source is None or _is_here(tensor):
            self._copied[id(tensor)] = tensor, made
        return made

    def _copied_source(self, tensor: Any) -> tf.Tensor | None:
        """The input of a unary op, if the shards have copies of it, or can make them of others."""
        source = unary_input(tensor)
        if source is None:
            return None
        there = id(source) in self._copied or self._copied_source(source) is not None
        return source if there else None

    def _send(self, tensor: Any) -> list[tf.Tensor]:
        return [tf.convert_to_tensor(tensor)] * self.count

    def _everywhere(
        self, function: Callable[..., Any], *arguments: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Applies :meth:`map` to work that each shard does as a whole."""
        return self.map(function, *arguments)

    def slices(self, tensor: Any, sizes: Sequence[int], axis: int = -1) -> list[tf.Tensor]:
        """Each shard's slice of an axis: its piece, or cut from the whole tensor."""
        pieces = self.pieces(tensor, axis)
        if pieces and [piece.shape[axis] for piece in pieces] == list(sizes):
            return pieces
        return list(tf.split(tensor, list(sizes), axis=axis))

    def total(self, pieces: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum of all shards' pieces, on the first device."""
        return tf.add_n(list(map(tf.identity, pieces)))

    def join(self, pieces: Sequence[tf.Tensor], axis: int = -1) -> tf.Tensor:
        """The tensor that these pieces divide along an axis, on the first device."""
        whole = tf.concat(list(map(tf.identity, pieces)), axis=axis)
        self._known[id(whole)] = whole, list(pieces), axis
        return whole

    def pieces(self, tensor: Any, axis: int = -1) -> list[tf.Tensor] | None:
        """The pieces of a divided tensor, each on its shard's device; None: it is not divided.

        If elementwise ops make the tensor of divided tensors, each shard computes its piece.
        """
        if self._is_known(tensor, axis):
            return self._known[id(tensor)][1]
        made = self._derivation(tensor, axis)
        if made is None:
            return None
        known = [self.pieces(leaf, axis) for leaf in made.leaves]
        pieces = self.map(made.run, *(each for each in known if each is not None))
        if _is_here(tensor):
            self._known[id(tensor)] = tensor, pieces, axis
        return pieces

    def _is_known(self, tensor: Any, axis: int) -> bool:
        return id(tensor) in self._known and self._known[id(tensor)][2] == axis

    def _derivation(self, tensor: Any, axis: int = -1) -> _Derivation | None:
        """How elementwise ops make a tensor of divided tensors; None: they do not."""
        leaves: dict[int, tf.Tensor] = {}
        steps: dict[int, tf.Tensor] = {}

        def visit(each: Any) -> bool:
            if id(each) in leaves or id(each) in steps:
                return True
            if self._is_known(each, axis):
                leaves[id(each)] = each
                return True
            key = id(each), axis
            if key in self._undivided or not tf.is_symbolic_tensor(each):
                return False
            follows = _is_elementwise(each) and all(map(visit, each.op.inputs))
            if not follows and not _is_number(each):
                self._undivided[key] = each  # for good: ops take a tensor after it is known
                return False
            steps[id(each)] = each
            return True

        if not visit(tensor):
            return None
        alike = {_sizes(self._known[id(leaf)]) for leaf in leaves.values()}
        if len(alike) != 1:
            return None
        return _Derivation(list(leaves.values()), list(steps.values()))


class _Derivation(NamedTuple):
    """Elementwise ops that make a tensor of divided ones."""

    leaves: list[tf.Tensor]
    steps: list[tf.Tensor]
    """Their results, each after its inputs; the last one is the tensor."""

    def run(self, _: int, *pieces: tf.Tensor) -> tf.Tensor:
        """The piece of the tensor, from those of the leaves."""
        values = {id(leaf): piece for leaf, piece in zip(self.leaves, pieces, strict=True)}
        for each in self.steps:
            if _is_number(each):
                values[id(each)] = tf.constant(tf.get_static_value(each), each.dtype)
            else:
                values[id(each)] = _again(each.op)(0, *(values[id(x)] for x in each.op.inputs))
        return values[id(self.steps[-1])]


def _sizes(known: tuple[tf.Tensor, list[tf.Tensor], int]) -> tuple[Any, ...]:
    """Rank, axis and sizes of the pieces: equal if an op may take such tensors together."""
    whole, pieces, axis = known
    return whole.shape.rank, axis, *(piece.shape[axis] for piece in pieces)


class Traced(ShardGroup):
    """Shards of one device, for traces that show what a layer would do, and compute nothing."""

    def __init__(self, count: int):
        super().__init__([contextlib.nullcontext] * count)

    def map(self, function: Callable[..., Any], *arguments: Sequence[tf.Tensor]) -> list[Any]:
        """Maps as the base does; the first shard stands for all if they do the same."""
        shapes = [[tensor.shape for tensor in tensors] for tensors in zip(*arguments, strict=True)]
        if any(each != shapes[0] for each in shapes):
            with tf.name_scope(ONE_SHARD):
                return super().map(function, *arguments)
        with tf.name_scope(ALL_SHARDS):
            return super().map(function, *(each[:1] for each in arguments)) * self.count

    def _everywhere(
        self, function: Callable[..., Any], *arguments: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        # Not ALL_SHARDS: they divide none of this work.
        return super().map(function, *(each[:1] for each in arguments)) * self.count

    def _call(self, function: Callable[..., Any], shard: int, tensors: Sequence[tf.Tensor]) -> Any:
        return function(*tensors)  # nobody takes a gradient


def _placed(
    function: Callable[..., Any], shard: int, places: Sequence[int], *given: tf.Tensor
) -> Any:
    return function(shard, *(given[place] for place in places))


def unary_input(tensor: Any) -> tf.Tensor | None:
    """The input of an op that treats each entry by itself; None: a tensor comes from another op."""
    if not tf.is_symbolic_tensor(tensor) or not _is_elementwise(tensor):
        return None
    return tensor.op.inputs[0] if tensor.op.type in _UNARY else None


def _is_elementwise(tensor: tf.Tensor) -> bool:
    """Whether an op that treats each entry by itself makes a tensor of floats."""
    op = tensor.op
    if op.type not in _ELEMENTWISE or not tensor.dtype.is_floating:
        return False
    return "_gradient_op_type" not in op.node_def.attr  # a user's gradient_override_map


def _is_number(tensor: tf.Tensor) -> bool:
    """Whether a tensor is a scalar that the graph knows."""
    return tensor.shape.rank == 0 and tf.get_static_value(tensor) is not None


def _is_here(tensor: tf.Tensor) -> bool:
    """Whether a tensor is of the current graph: a branch of a condition has a graph of its own."""
    return tensor.graph is tf.compat.v1.get_default_graph()


def _again(op: tf.Operation) -> Callable[..., tf.Tensor]:
    """Repeats an elementwise op on other tensors, for :meth:`ShardGroup.map`."""
    names = [each.name for each in op.op_def.input_arg]
    more = {"DstT": op.get_attr("DstT")} if op.type == "Cast" else {}
    repeat = getattr(tf.raw_ops, op.type)
    return lambda _, *tensors: repeat(**dict(zip(names, tensors, strict=True)), **more)


_current: ContextVar[ShardGroup | None] = ContextVar("shard_group", default=None)


def current() -> ShardGroup | None:
    """The shards of the pass that is being traced; None: there is one device."""
    return _current.get()


@contextlib.contextmanager
def active(group: ShardGroup | None) -> Iterator[None]:
    """Makes ``group`` the current one in the block."""
    token = _current.set(group)
    try:
        yield
    finally:
        _current.reset(token)
