"""Which examples belong to which split, and to which of its shards.

Ids are positions in the data set's own order: the train part has ``0 … n_train - 1``, the
test part ``n_train … n_train + n_test - 1``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stagecraft.schemas.errors import UserError
from stagecraft.schemas.features import EVAL, TRAIN, VAL

Ids = npt.NDArray[np.int64]

SPLITS = (TRAIN, VAL, EVAL)


def split_ids(n_train: int, n_test: int, val_fraction: float) -> dict[str, Ids]:
    """Ids of every split, ascending.

    ``val`` has exactly ``round(n_train * val_fraction)`` examples, those whose hashed ids are
    smallest: the choice depends on nothing but these numbers, and on no library's random
    generator.

    Raises:
      UserError: train or val would be empty.
    """
    count = round(n_train * val_fraction)
    if not 0 < count < n_train:
        raise UserError(
            f"val_fraction {val_fraction} of {n_train:,} training pictures leaves "
            f"{n_train - count:,} to train on and {count:,} to choose the best checkpoint on; "
            f"both need at least one, for example with val_fraction {max(0.1, 1 / n_train):.3g}."
        )
    ids = np.arange(n_train, dtype=np.int64)
    held_out = np.zeros(n_train, bool)
    held_out[np.argsort(_hash(ids), kind="stable")[:count]] = True
    return {
        TRAIN: ids[~held_out],
        VAL: ids[held_out],
        EVAL: np.arange(n_train, n_train + n_test, dtype=np.int64),
    }


def shard_ids(ids: Ids, shard: int, shards: int) -> Ids:
    """The ids in one of a split's shards: consecutive, sizes differing by one at most.

    A split with fewer examples than shards has empty shards: there are always as many files.
    """
    return ids[len(ids) * shard // shards : len(ids) * (shard + 1) // shards]


def _hash(ids: Ids) -> npt.NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea, Flood 2014): a bijection, so that no two ids tie."""
    x = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
