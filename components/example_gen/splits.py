"""Assigns examples to splits and shards.

Ids are positions in the data set's own order. The train part has ``0 … n_train - 1``, the test part
``n_train … n_train + n_test - 1``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stagecraft.common.errors import SettingError
from stagecraft.schemas.features import EVAL, TRAIN, VAL

Ids = npt.NDArray[np.int64]

SPLITS = (TRAIN, VAL, EVAL)


def split_ids(n_train: int, n_test: int, val_fraction: float) -> dict[str, Ids]:
    """Ids of every split, ascending.

    ``val`` has exactly ``round(n_train * val_fraction)`` examples: those with the smallest hashed
    ids. The choice depends only on these numbers, not on the random generator of a library.
    """
    count = round(n_train * val_fraction)
    if not 0 < count < n_train:
        raise SettingError(
            "val_fraction",
            val_fraction,
            f"of {n_train:,} training images leaves {n_train - count:,} for train and {count:,} "
            "for val, but both need at least one",
            f"{max(0.1, 1 / n_train):.3g}",
        )
    ids = np.arange(n_train, dtype=np.int64)
    held_out = np.zeros(n_train, bool)
    held_out[np.argsort(_hash(ids), kind="stable")[:count]] = True
    return {
        TRAIN: ids[~held_out],
        VAL: ids[held_out],
        EVAL: np.arange(n_train, n_train + n_test, dtype=np.int64),
    }


def three(n: int, val_fraction: float) -> dict[str, Ids]:
    """Ids of every split, ascending, of ``n`` examples without a test part.

    ``val`` and ``eval`` have ``round(n * val_fraction)`` examples each, by hashed ids as above.
    """
    count = round(n * val_fraction)
    if not 0 < 2 * count < n:
        raise SettingError(
            "val_fraction",
            val_fraction,
            f"of {n:,} examples for val and as many for eval leaves {n - 2 * count:,} for train, "
            "but each needs at least one",
            f"{max(0.1, 1 / max(n, 3)):.3g}",
        )
    order = np.argsort(_hash(np.arange(n, dtype=np.int64)), kind="stable")
    parts = {VAL: order[:count], EVAL: order[count : 2 * count], TRAIN: order[2 * count :]}
    return {split: np.sort(parts[split]).astype(np.int64) for split in SPLITS}


def shard_ids(ids: Ids, shard: int, shards: int) -> Ids:
    """The ids in one of a split's shards: consecutive; sizes differ by one at most."""
    return ids[len(ids) * shard // shards : len(ids) * (shard + 1) // shards]


def _hash(ids: Ids) -> npt.NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea, Flood 2014): a bijection, so that no two ids tie."""
    x = (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
