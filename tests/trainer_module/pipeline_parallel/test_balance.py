import itertools

import numpy as np
import pytest

from stagecraft.trainer_module.pipeline_parallel.partition import Balance, balance


def _by_trying(items, parts):
    """All divisions: the least of the costliest part, by the first cost, then by the second."""
    best = None
    for starts in itertools.combinations(range(1, len(items)), parts - 1):
        bounds = itertools.pairwise([0, *starts, len(items)])
        sums = [np.sum(items[begin:end], axis=0) for begin, end in bounds]
        worst = tuple(np.max(sums, axis=0))
        best = worst if best is None or worst < best else best
    return best


@pytest.mark.parametrize("seed", range(10))
def test_no_division_is_better(seed):
    generator = np.random.default_rng(seed)
    items = generator.integers(0, 6, (9, 2)).tolist()
    for parts in range(1, len(items) + 1):
        starts = balance(items, parts)
        bounds = [0, *starts, len(items)]
        assert len(starts) == parts - 1 and bounds == sorted(set(bounds))
        sums = [np.sum(items[begin:end], axis=0) for begin, end in itertools.pairwise(bounds)]
        assert tuple(np.max(sums, axis=0)) == _by_trying(items, parts)


@pytest.mark.parametrize("seed", range(5))
def test_one_run_gives_all_numbers_of_parts(seed):
    items = np.random.default_rng(seed).integers(0, 6, (9, 2)).tolist()
    every = Balance(items)
    for parts in (5, 9, 1, 3):
        assert every.starts(parts) == balance(items, parts)
        assert every.least(parts) == _by_trying(items, parts)[0]


def lengths(may):
    """Which ranges fit, by part and length."""
    ends, begins = np.arange(5)[:, None], np.arange(4)[None, :]
    return lambda part: may(part, ends - begins)


def test_parts_that_may_not_be_are_not_chosen():
    items = [(1,), (1,), (1,), (3,)]
    assert balance(items, 2) == [3]
    assert balance(items, 2, lengths(lambda part, length: length <= 2)) == [2]
    assert balance(items, 2, lengths(lambda part, length: (length >= 3) | (part == 0))) == [1]
    assert balance(items, 2, lengths(lambda part, length: length == 1)) is None
