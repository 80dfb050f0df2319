import itertools

import pytest

from stagecraft.trainer_module.planning import schedule
from stagecraft.trainer_module.planning.schedule import BACKWARD, FORWARD, SCHEDULES, Pass, Slot

SIZES = [(1, 1), (1, 3), (4, 1), (2, 2), (4, 3), (3, 4), (8, 2)]


def unit_slots(name: str, microbatches: int, stages: int) -> list[Slot]:
    orders = schedule.passes(name, microbatches, stages)
    return schedule.timetable(orders, [1.0] * stages, [2.0] * stages)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_pictures_in_the_docstring_are_those_that_are_drawn(name):
    picture = schedule.picture(unit_slots(name, 4, 3))
    drawn = "\n".join(line.strip() for line in (schedule.__doc__ or "").splitlines())
    assert picture in drawn


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_every_pass_once_after_those_it_needs(name, microbatches, stages):
    done = schedule.in_order(name, microbatches, stages)
    assert len(done) == len(set(done)) == 2 * microbatches * stages
    when = {each: place for place, each in enumerate(done)}
    for direction, stage, microbatch in done:
        own, needed = when[Pass(direction, stage, microbatch)], []
        if direction == FORWARD and stage:
            needed = [Pass(direction, stage - 1, microbatch)]
        if direction == BACKWARD:
            needed = [Pass(FORWARD, stage, microbatch)]
            needed += [Pass(direction, stage + 1, microbatch)] * (stage < stages - 1)
        assert all(when[each] < own for each in needed)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_no_stage_is_in_two_places_and_the_bubble_is_the_formula(name, microbatches, stages):
    slots = unit_slots(name, microbatches, stages)
    for stage in range(stages):
        own = [slot for slot in slots if slot.done.stage == stage]
        assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
    assert schedule.idle(slots) == pytest.approx(schedule.bubble(microbatches, stages))
    assert schedule.span(slots) == 3 * (microbatches + stages - 1)
    assert schedule.speedup(microbatches, stages) == pytest.approx(
        3 * microbatches * stages / schedule.span(slots)
    )


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_how_many_microbatches_are_held(microbatches, stages):
    orders = schedule.passes("gpipe", microbatches, stages)
    assert [schedule.held(order) for order in orders] == [microbatches] * stages
    orders = schedule.passes("1f1b", microbatches, stages)
    assert [schedule.held(order) for order in orders] == [
        min(microbatches, stages - stage) for stage in range(stages)
    ]


def test_the_slowest_stage_sets_the_pace_and_copies_take_time():
    orders = schedule.passes("gpipe", 2, 2)
    slots = schedule.timetable(orders, [1.0, 3.0], [2.0, 6.0], copies=[0.5])
    assert [(slot.done, slot.begin, slot.end) for slot in slots] == [
        (Pass(FORWARD, 0, 0), 0.0, 1.0),
        (Pass(FORWARD, 0, 1), 1.0, 2.0),
        (Pass(FORWARD, 1, 0), 1.5, 4.5),
        (Pass(FORWARD, 1, 1), 4.5, 7.5),
        (Pass(BACKWARD, 1, 1), 7.5, 13.5),
        (Pass(BACKWARD, 1, 0), 13.5, 19.5),
        (Pass(BACKWARD, 0, 1), 14.0, 16.0),
        (Pass(BACKWARD, 0, 0), 20.0, 22.0),
    ]
    assert schedule.idle(slots) == pytest.approx(1 - (6 + 18) / 44)
