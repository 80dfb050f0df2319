import pytest

from stagecraft.trainer_module.models import variable_patterns
from stagecraft.trainer_module.settings import TrainSettings

PATHS = ["a/kernel", "a/bias", "b/kernel", "c/kernel"]


def phases(total: int = 10, **shares: float) -> list[tuple[int | None, set[str]]]:
    train = TrainSettings(freeze_after=shares)
    return [(each.end, {*each.frozen}) for each in variable_patterns.phases(train, PATHS, total)]


def test_without_the_setting_there_is_one_phase():
    assert variable_patterns.phases(TrainSettings(), PATHS, 10) == [variable_patterns.ALL]


def test_each_share_begins_a_phase():
    assert phases(bias=0.6, a=0.3, **{"b/": 0.6}) == [
        (3, set()),
        (6, {"a/kernel"}),
        (None, {"a/kernel", "a/bias", "b/kernel"}),
    ]


@pytest.mark.parametrize(
    ("share", "total", "expected"),
    [
        (0.3, 10, [(3, set()), (None, {"b/kernel"})]),
        (0.1, 30, [(3, set()), (None, {"b/kernel"})]),  # 3.0000000000000004
        (0.1, 4, [(1, set()), (None, {"b/kernel"})]),
        (0.1, 1, [(None, set())]),
        (0.9, 4, [(None, set())]),
    ],
)
def test_a_share_is_rounded_to_steps(share, total, expected):
    assert phases(total, **{"b/": share}) == expected


def test_the_phase_of_a_step():
    found = variable_patterns.phases(TrainSettings(freeze_after={"a/": 0.2, "b/": 0.5}), PATHS, 10)
    assert [variable_patterns.number_at(found, step) for step in range(11)] == [0] * 2 + [1] * 3 + [
        2
    ] * 6
