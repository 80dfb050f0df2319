"""Random numbers of a part of a batch: those that Keras draws for the same rows of the whole batch.

Keras draws from a counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"): the n-th number is a function of seed and n. So a part begins at the number of its first
row, and draws no more than it needs. What TensorFlow draws by rejection, such as a truncated normal
number, depends on the numbers before it: a part draws all rows, and takes its own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src import backend

_PER_BLOCK = {tf.float64: 2, tf.int64: 2, tf.uint64: 2}
"""Numbers of a dtype in a block of the generator, of 128 bits; 4 of the others
(tensorflow/core/lib/random/random_distributions.h)."""


class Rows(NamedTuple):
    """The rows of a part: int32 scalars."""

    first: tf.Tensor
    count: tf.Tensor
    total: tf.Tensor
    """Rows of the whole batch."""


@contextlib.contextmanager
def of_rows(rows: Rows | None) -> Iterator[None]:
    """In the block and this thread, ``keras.random`` draws for these rows; None: as Keras does."""
    token = _current.set(rows)
    with _patched():
        try:
            yield
        finally:
            _current.reset(token)


def current() -> Rows | None:
    """The rows of the open block."""
    return _current.get()


_current: ContextVar[Rows | None] = ContextVar("rows", default=None)


@contextlib.contextmanager
def _patched() -> Iterator[None]:
    """Replaces Keras's functions; a nested block finds them replaced."""
    module: Any = backend.random
    before = {name: getattr(module, name) for name in _REPLACED}
    try:
        for name, make in _REPLACED.items():
            if not hasattr(before[name], "of_rows"):
                replaced: Any = make(before[name])
                replaced.of_rows = True
                setattr(module, name, replaced)
        yield
    finally:
        for name, own in before.items():
            setattr(module, name, own)


def _dropout(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def dropout(inputs: Any, rate: float, noise_shape: Any = None, seed: Any = None) -> Any:
        rows = _current.get()
        shape = tf.shape(inputs) if noise_shape is None else noise_shape
        if noise_shape is not None:
            sizes = tf.unstack(tf.shape(inputs))
            shape = [own if size is None else size for own, size in zip(sizes, shape, strict=False)]
        shared = isinstance(shape, list) and (
            len(shape) < inputs.shape.rank or (isinstance(shape[0], int) and shape[0] == 1)
        )
        if rows is None or shared or isinstance(inputs, tf.RaggedTensor):
            return own(inputs, rate, noise_shape, seed)
        if isinstance(shape, list):
            shape = tf.stack([tf.shape(inputs)[0], *shape[1:]])
        draw = functools.partial(_uniform, rows=rows, seed=_seed(seed))
        return tf.nn.experimental.general_dropout(
            inputs, rate=rate, noise_shape=shape, uniform_sampler=draw
        )

    return dropout


def _uniform(shape: Any, dtype: Any, *, rows: Rows, seed: tf.Tensor) -> tf.Tensor:
    """Uniform numbers from 0 to 1, as ``tf.random.stateless_uniform`` draws them."""
    return _begun(tf.raw_ops.StatelessRandomUniformV2, shape, tf.as_dtype(dtype), rows, seed)


def _begun(op: Any, shape: Any, dtype: tf.DType, rows: Rows, seed: tf.Tensor) -> tf.Tensor:
    """Numbers that an op draws for the rows; the first dimension is a multiple of their number."""
    shape = tf.cast(tf.convert_to_tensor(shape), tf.int64)
    size = tf.reduce_prod(shape)
    of_row = size // tf.maximum(tf.cast(rows.count, tf.int64), 1)
    begin = tf.cast(rows.first, tf.int64) * of_row
    per_block = _PER_BLOCK.get(dtype, 4)
    blocks, left_out = begin // per_block, begin % per_block
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    low, high = tf.unstack(tf.bitcast(counter, tf.int64))
    moved = tf.bitcast(tf.stack([low + blocks, high]), tf.uint64)
    # 3: the algorithm of the device, as in tf.random.stateless_uniform.
    drawn = op(shape=[left_out + size], key=key, counter=moved, alg=3, dtype=dtype)
    return tf.reshape(drawn[left_out:], shape)


def _scaled(op: Any, scale: Callable[[tf.Tensor, Any, Any], tf.Tensor]) -> Any:
    """Replaces a function that draws with an op.

    Args:
        scale: maps what the op draws, and the function's second and third argument, to the result.
    """

    def make(own: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(own)

        @functools.wraps(own)
        def draw(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            shape, one, two, dtype, seed = bound.arguments.values()
            rows = _current.get()
            if rows is None or not _of_batch(shape):
                return own(*args, **kwargs)
            kind = tf.as_dtype(dtype or backend.floatx())
            drawn = _begun(op, shape, kind, rows, _seed(seed))
            return scale(drawn, one, two)

        return draw

    return make


def _whole(own: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces a function by one that draws for all rows, and takes those of the part."""

    @functools.wraps(own)
    def draw(shape: Any, *args: Any, **kwargs: Any) -> Any:
        rows = _current.get()
        if rows is None or not _of_batch(shape):
            return own(shape, *args, **kwargs)
        first, *rest = tf.unstack(tf.convert_to_tensor(shape))
        each = first // tf.maximum(rows.count, 1)
        drawn = own(tf.stack([each * rows.total, *rest]), *args, **kwargs)
        return drawn[each * rows.first :][:first]

    return draw


def _of_batch(shape: Any) -> bool:
    """Whether the first dimension is that of the batch: the only one that a graph does not know."""
    if isinstance(shape, tf.Tensor):
        return shape.shape.num_elements() != 0
    sizes = list(shape)
    return bool(sizes) and not isinstance(sizes[0], int)


def _seed(seed: Any) -> tf.Tensor:
    from keras.src.backend.tensorflow import random as of_tensorflow

    drawn = of_tensorflow.draw_seed(seed)
    return of_tensorflow._cast_seed(drawn)


_REPLACED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "dropout": _dropout,
    "uniform": _scaled(
        tf.raw_ops.StatelessRandomUniformV2,
        lambda drawn, low, high: (
            drawn * (tf.cast(high, drawn.dtype) - tf.cast(low, drawn.dtype))
            + tf.cast(low, drawn.dtype)
        ),
    ),
    "normal": _scaled(
        tf.raw_ops.StatelessRandomNormalV2, lambda drawn, mean, stddev: drawn * stddev + mean
    ),
    "truncated_normal": _whole,
    "randint": _whole,
}
