"""Splits: exact, disjoint, the same for ever."""

import numpy as np
import pytest

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import splits


def test_every_id_is_in_one_split_and_one_shard():
    ids = splits.split_ids(50_000, 10_000, 0.1)
    assert {split: len(mine) for split, mine in ids.items()} == {
        "train": 45_000,
        "val": 5_000,
        "eval": 10_000,
    }
    shards = [splits.shard_ids(mine, k, 48) for mine in ids.values() for k in range(48)]
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(60_000))
    for mine in ids.values():
        lengths = {len(splits.shard_ids(mine, k, 48)) for k in range(48)}
        assert max(lengths) - min(lengths) <= 1


def test_val_is_chosen_by_id_and_never_changes():
    val = splits.split_ids(50_000, 10_000, 0.1)["val"]
    assert val[:5].tolist() == [2, 32, 33, 41, 42]
    # Spread evenly: of each tenth of the ids about a tenth (binomial, five standard deviations).
    counts, _ = np.histogram(val, 10, (0, 50_000))
    assert np.abs(counts - 500).max() < 5 * (5_000 * 0.1 * 0.9) ** 0.5
    # A larger share holds out the same examples and more.
    assert set(val) < set(splits.split_ids(50_000, 0, 0.2)["val"])


@pytest.mark.parametrize(("n", "fraction", "count"), [(30, 0.1, 3), (4_999, 0.1, 500), (3, 0.4, 1)])
def test_val_has_the_rounded_share(n, fraction, count):
    assert len(splits.split_ids(n, 0, fraction)["val"]) == count


@pytest.mark.parametrize(("n", "fraction"), [(4, 0.1), (1, 0.9), (10, 0.0)])
def test_an_empty_split_is_refused(n, fraction):
    with pytest.raises(SettingError) as caught:
        splits.split_ids(n, 10, fraction)
    assert (caught.value.setting, caught.value.value) == ("val_fraction", fraction)
