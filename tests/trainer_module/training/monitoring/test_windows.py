import pytest

from stagecraft.trainer_module.training.monitoring import timeline
from stagecraft.trainer_module.training.monitoring.timeline import Op


def ops(*times: tuple[float, float]) -> list[Op]:
    return [Op("", begin, end) for begin, end in times]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([(0, 4)], [(4, 8)], [(0, 4), (4, 8)]),
        ([(0, 4)], [(6, 8)], [(0, 4), (6, 8)]),
        ([(0, 4)], [(1, 2), (6, 8)], [(0, 4), (6, 8)]),
        ([(0, 4), (6, 7)], [(4, 8)], [(0, 4), (4, 8)]),
        ([(0, 4), (6, 7)], [(1, 2), (5, 6), (6, 9)], [(0, 4), (5, 9)]),
        ([(0, 5)], [(4, 8)], [(0, 5), (5, 8)]),
        ([(2, 6)], [(0, 1)], [(2, 6), (6, 6)]),
        ([(2, 2)], [(2, 2)], [(2, 2), (2, 2)]),
    ],
    ids=["at once", "a gap", "early", "late", "both", "overlap", "ahead as a whole", "no time"],
)
def test_two(before, after, expected):
    assert timeline.windows([ops(*before), ops(*after)]) == expected


def test_one_has_all_of_its_ops():
    assert timeline.windows([ops((3, 4), (1, 2))]) == [(1, 4)]


def test_each_begins_after_the_one_before_it_whatever_was_seen():
    found = timeline.windows([ops((8, 9)), ops((5, 6)), ops((0, 2)), ops((1, 4), (7, 9))])
    times = [time for window in found for time in window]
    assert times == sorted(times)
