"""A vocabulary that shards divide: embeddings by rows, and the cross entropy of divided logits.

Shoeybi et al. 2019, arXiv 1909.08053, section 3: no device holds all logits. Each shard sends three
numbers for each target: its largest logit, its sum of exponentials, and the logit of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from stagecraft.trainer_module.tensor_parallel.group import ShardGroup
from stagecraft.trainer_module.tensor_parallel.split import Split


def looked_up(
    group: ShardGroup, ids: tf.Tensor, slices: Sequence[tf.Tensor], split: Split, dtype: Any
) -> tf.Tensor:
    """Rows of a table whose rows are divided: ids ``[...]`` to ``[..., width]``.

    Negative ids count from the end, as in Keras. The row of an id outside of the table is NaN: no
    shard has it, and a row of zeros would go unnoticed.
    """
    ids = from_start(ids, sum(split.sizes))

    def rows(shard: int, given: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        place, has = _own(given, split.sizes, shard)
        found = tf.cast(tf.gather(table, place), dtype)
        return tf.where(has[..., tf.newaxis], found, tf.zeros_like(found))

    found = group.total(group.map(rows, group.copies(ids), slices))
    return _of_known(ids, sum(split.sizes), found)


def from_start(ids: tf.Tensor, size: int) -> tf.Tensor:
    """Ids of which negative ones counted from the end of a table of ``size`` rows."""
    return tf.where(ids < 0, ids + tf.cast(size, ids.dtype), ids)


class Logits:
    """Logits that shards divide by classes; what the cross entropy needs of them."""

    def __init__(self, group: ShardGroup, pieces: Sequence[tf.Tensor]):
        """``pieces``: of each shard, ``[..., classes of the shard]``."""
        self._group, self._pieces = group, pieces
        self._sizes = [piece.shape[-1] for piece in pieces]

    @classmethod
    def find(cls, group: ShardGroup, logits: Any) -> Logits | None:
        """The logits whose whole is a tensor; None: it is not divided."""
        pieces = group.pieces(logits)
        return None if pieces is None else cls(group, pieces)

    def cross_entropy(self, targets: Any, dtype: Any, smoothing: float) -> tf.Tensor:
        """Softmax cross entropy in nats: the shape of the targets.

        It is NaN for a target that is no class, as TensorFlow's is on GPUs.

        Args:
            targets: integers ``[...]``.
            dtype: of the computation; logits in float64 stay so.
            smoothing: share of the target that all classes divide evenly.
        """
        group, sizes = self._group, self._sizes
        dtype = tf.float64 if self._pieces[0].dtype == tf.float64 else dtype
        # The largest logit cancels in the sum, so it needs no gradient.
        tops = group.map(
            lambda _, piece: tf.reduce_max(tf.stop_gradient(tf.cast(piece, dtype)), -1),
            self._pieces,
        )
        most = tf.stop_gradient(tf.reduce_max(tf.stack(list(map(tf.identity, tops))), axis=0))

        def sums(shard: int, piece: tf.Tensor, top: tf.Tensor, ids: tf.Tensor) -> Any:
            piece = tf.cast(piece, dtype) - tf.stop_gradient(top)[..., tf.newaxis]
            place, has = _own(ids, sizes, shard)
            of_target = tf.gather(piece, place, batch_dims=len(ids.shape))
            return (
                tf.reduce_sum(tf.exp(piece), -1),
                tf.where(has, of_target, tf.zeros_like(of_target)),
                tf.reduce_sum(piece, -1),
            )

        parts = group.map(sums, self._pieces, group.copies(most), group.copies(targets))
        exponentials, of_target, total = (group.total(each) for each in zip(*parts, strict=True))
        normalizer = tf.math.log(exponentials)
        losses = normalizer - of_target
        if smoothing:
            uniform = normalizer - total / sum(sizes)
            losses = (1 - smoothing) * losses + smoothing * uniform
        return _of_known(targets, sum(sizes), losses)

    def largest(self, dtype: Any) -> tf.Tensor:
        """The class of the largest logit, the first of equal ones: ``[...]`` of the dtype."""
        group, sizes = self._group, self._sizes
        tops = group.map(lambda _, piece: tf.reduce_max(piece, -1), self._pieces)
        places = []
        for shard, piece in enumerate(self._pieces):
            with group.on(shard):
                place = tf.argmax(piece, -1, output_type=dtype)
                places.append(place + tf.cast(sum(sizes[:shard]), dtype))
        shard = tf.argmax(tf.stack(list(map(tf.identity, tops)), -1), -1)
        stacked = tf.stack(list(map(tf.identity, places)), -1)
        return tf.gather(stacked, shard, batch_dims=len(shard.shape))


def _own(ids: tf.Tensor, sizes: Sequence[int], shard: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Places of ids in a shard's slice, 0 where the shard has not the id; whether it has."""
    begin = tf.cast(sum(sizes[:shard]), ids.dtype)
    place = ids - begin
    has = (place >= 0) & (place < tf.cast(sizes[shard], ids.dtype))
    return tf.where(has, place, tf.zeros_like(place)), has


def _of_known(ids: tf.Tensor, size: int, values: tf.Tensor) -> tf.Tensor:
    """Values ``[*ids, ...]``; NaN for ids outside of ``0 <= id < size``."""
    known = (ids >= 0) & (ids < tf.cast(size, ids.dtype))
    shape = tf.concat([tf.shape(ids), tf.ones([len(values.shape) - len(ids.shape)], tf.int32)], 0)
    return tf.where(tf.reshape(known, shape), values, tf.cast(float("nan"), values.dtype))
