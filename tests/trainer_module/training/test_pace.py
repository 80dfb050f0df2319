import pytest

from stagecraft.trainer_module.training.loop import Pace


def test_the_traced_call_counts_only_alone():
    pace = Pace()
    pace.add(1, 128, 10.0)
    assert pace.images_per_second == 12.8
    assert pace.steps_per_call == 1
    pace.add(1, 128, 0.5)
    assert pace.images_per_second == 256.0


def test_calls_grow_to_a_second_and_no_faster_than_eightfold():
    pace = Pace()
    pace.add(1, 128, 10.0)
    sizes = []
    for _ in range(4):
        steps = pace.steps_per_call
        pace.add(steps, 128 * steps, 0.01 * steps)
        sizes.append(pace.steps_per_call)
    assert sizes == [8, 64, 100, 100]


def test_slow_steps_are_asked_one_at_a_time():
    pace = Pace()
    pace.add(1, 128, 10.0)
    pace.add(1, 128, 30.0)
    assert pace.steps_per_call == 1


def test_goes_on_from_an_earlier_attempt():
    pace = Pace(seconds=10.0, examples=1000)
    pace.add(1, 100, 60.0)
    pace.add(1, 100, 1.0)
    assert pace.images_per_second == pytest.approx(100.0)
