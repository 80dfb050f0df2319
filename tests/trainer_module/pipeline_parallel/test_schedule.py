import itertools

import pytest

from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.pipeline_parallel.schedule import (
    BACKWARD,
    FORWARD,
    SCHEDULES,
    Pass,
    Slot,
)

SIZES = [(1, 1), (1, 3), (4, 1), (2, 2), (4, 3), (3, 4), (8, 2)]
INTERLEAVED = [(2, 2, 2), (4, 2, 2), (6, 3, 2), (4, 4, 3), (8, 2, 5)]
ALL = [(name, *sizes, 1) for name in SCHEDULES for sizes in SIZES]
ALL += [("1f1b", *sizes) for sizes in INTERLEAVED]
"""Schedule, microbatches, stages, virtual stages."""


def unit_slots(name: str, microbatches: int, stages: int, virtual: int = 1) -> list[Slot]:
    orders, parts = schedule.passes(name, microbatches, stages, virtual), stages * virtual
    return schedule.timetable(orders, [1.0] * parts, [2.0] * parts)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_pictures_in_the_docstring_are_those_that_are_drawn(name):
    picture = schedule.picture(unit_slots(name, 4, 3), 3)
    assert picture in drawn()


def test_the_interleaved_picture_is_the_one_that_is_drawn():
    lines = schedule.picture(unit_slots("1f1b", 4, 2, 2), 2).splitlines()
    shown = [line.removesuffix(" …") for line in drawn().splitlines() if line[:6] == "device"]
    shown = [line for line in shown if line[7:8].isdigit()]
    assert len(shown) == len(lines) == 2
    assert all(line.startswith(start) for line, start in zip(lines, shown, strict=True))


def drawn() -> str:
    return "\n".join(line.strip() for line in (schedule.__doc__ or "").splitlines())


@pytest.mark.parametrize(("name", "microbatches", "devices", "virtual"), ALL)
def test_every_pass_once_after_those_it_needs(name, microbatches, devices, virtual):
    done, stages = schedule.in_order(name, microbatches, devices, virtual), devices * virtual
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


@pytest.mark.parametrize(("name", "microbatches", "stages", "virtual"), ALL)
def test_no_device_is_in_two_places_and_the_bubble_is_the_formula(
    name, microbatches, stages, virtual
):
    slots = unit_slots(name, microbatches, stages, virtual)
    for device in range(stages):
        own = [slot for slot in slots if slot.done.stage % stages == device]
        assert all(one.end <= other.begin for one, other in itertools.pairwise(own))
    bubble = schedule.bubble(microbatches, stages, virtual)
    assert schedule.idle(slots, stages) == pytest.approx(bubble)
    assert schedule.span(slots) == 3 * (virtual * microbatches + stages - 1)
    assert schedule.speedup(microbatches, stages, virtual) == pytest.approx(
        3 * virtual * microbatches * stages / schedule.span(slots)
    )


def test_the_bubble_of_virtual_stages_is_smaller_by_their_number():
    """Relative to the work, as in Narayanan et al. 2021, section 2.2.2: ``(K - 1) / (V * M)``."""

    def overhead(virtual: int) -> float:
        bubble = schedule.bubble(8, 4, virtual)
        return bubble / (1 - bubble)

    assert overhead(1) == pytest.approx(3 / 8)
    assert overhead(2) == pytest.approx(overhead(1) / 2)
    assert overhead(3) == pytest.approx(overhead(1) / 3)


def most_held(order):
    most = now = 0
    for done in order:
        now += 1 if done.direction == schedule.FORWARD else -1
        most = max(most, now)
    return most


def test_virtual_stages_hold_more_microbatches():
    """Device k of K holds ``2 (K - k - 1) + (V - 1) K + 1`` before its first pass back."""
    orders = schedule.passes("1f1b", 8, 4, 2)
    assert [most_held(order) for order in orders] == [11, 9, 7, 5]


@pytest.mark.parametrize(
    ("microbatches", "stages", "virtual"), [(8, 4, 2), (2, 2, 8), (12, 3, 3), (5, 5, 4), (64, 8, 2)]
)
def test_each_virtual_stage_holds_what_its_passes_say(microbatches, stages, virtual):
    orders = schedule.passes("1f1b", microbatches, stages, virtual)
    assert schedule.held("1f1b", microbatches, stages, virtual) == tuple(
        most_held(done for done in orders[part % stages] if done.stage == part)
        for part in range(stages * virtual)
    )


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
def test_how_many_microbatches_are_held(microbatches, stages):
    assert schedule.held("gpipe", microbatches, stages) == (microbatches,) * stages
    assert schedule.held("1f1b", microbatches, stages) == tuple(
        min(microbatches, stages - stage) for stage in range(stages)
    )


@pytest.mark.parametrize(("microbatches", "stages"), SIZES)
@pytest.mark.parametrize("name", schedule.SCHEDULES)
def test_the_end_alone_is_that_of_the_timetable(name, microbatches, stages):
    virtual = 2 if name == "1f1b" and stages > 1 and microbatches % stages == 0 else 1
    parts = stages * virtual
    times = [[(3 * part + kind) % 7 + 0.1 for part in range(parts)] for kind in range(4)]
    times[2:] = times[2][1:], times[3][1:]
    slots = schedule.timetable(schedule.passes(name, microbatches, stages, virtual), *times)
    assert schedule.finish(name, microbatches, stages, virtual, *times) == schedule.span(slots)


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
    assert schedule.idle(slots, 2) == pytest.approx(1 - (6 + 18) / 44)


def test_activations_computed_again_before_the_gradient_arrives():
    # One microbatch, two stages; forward 1, again 1, backward 2. Stage 0 computes again while stage
    # 1 does, and is ready when the gradient comes.
    orders = schedule.passes("gpipe", 1, 2)
    early = schedule.timetable(orders, [1, 1], [2, 2], recompute=[1, 1])
    late = schedule.timetable(orders, [1, 1], [3, 3])
    assert schedule.span(early) == 1 + 1 + (1 + 2) + 2
    assert schedule.span(late) == 1 + 1 + 3 + 3


@pytest.mark.parametrize("name", schedule.SCHEDULES)
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_computing_again_early_is_never_slower_and_never_free(name, stages):
    orders = schedule.passes(name, 8, stages)
    forward, backward, both = [1.0] * stages, [2.0] * stages, [3.0] * stages
    early = schedule.span(schedule.timetable(orders, forward, backward, recompute=forward))
    late = schedule.span(schedule.timetable(orders, forward, both))
    without = schedule.span(schedule.timetable(orders, forward, backward))
    assert without < early <= late
    assert (early == late) == (stages == 1), "one stage never waits"
