import pytest
from counting import CountingEngine, QuietReporter, train

from stagecraft.trainer_module.training.monitoring import curve
from stagecraft.trainer_module.training.monitoring.curve import Curve, Point


def test_a_long_training_keeps_few_points():
    found = Curve()
    for step in range(1, 10_001):
        found.add(
            Point(
                step,
                loss=step,
                metrics={"accuracy": 0.5},
                learning_rate=step,
                images_per_second=7.0,
            )
        )
    assert curve.MAX_POINTS / 2 <= len(found.points) < curve.MAX_POINTS
    steps = [point.step for point in found.points]
    assert steps == sorted(set(steps)) and steps[-1] == 10_000
    assert {point.learning_rate for point in found.points} == set(steps)
    # Means over the steps since the point before: a straight line stays one.
    for before, point in zip(found.points, found.points[1:], strict=False):
        assert point.loss == pytest.approx((before.step + 1 + point.step) / 2)
        assert point.images_per_second == pytest.approx(7.0)


def test_what_is_written_is_read(tmp_path):
    points = [
        Point(1, 2.5, {"accuracy": 0.25}, 0.1, 900.0),
        Point(3, 2.0, {"accuracy": 0.5}, 0.1, 800.0),
    ]
    Curve(points).write(tmp_path)
    assert curve.read((tmp_path / curve.FILE_NAME).read_text()) == points


def test_a_training_that_goes_on_has_the_points_of_the_attempts_before(tmp_path):
    accuracies, first, second, third = {4: 0.1, 8: 0.2, 10: 0.3}, *(QuietReporter() for _ in "123")
    with pytest.raises(KeyboardInterrupt):
        train(CountingEngine(accuracies, fails_at=9), tmp_path, first)
    train(CountingEngine(accuracies), tmp_path, second)
    kept = [step for step in first.steps if step <= 8]
    assert [point.step for point in second.logged] == kept
    train(CountingEngine(accuracies), tmp_path, third)  # there is nothing left to do
    assert [point.step for point in third.logged] == [*kept, *second.steps]
    assert third.steps == []
