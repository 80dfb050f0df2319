import dataclasses
from typing import Any

import keras
import numpy as np
import pytest
from chains import A100, LINK, WEIGHTS, WIDTH, chain, make, settings
from networks_built import built
from user_models import Subclassed

from stagecraft.common.errors import UserError
from stagecraft.trainer_module.models import costs
from stagecraft.trainer_module.models.costs import Times
from stagecraft.trainer_module.pipeline_parallel import schedule
from stagecraft.trainer_module.planning import accelerators, collective_costs, measure


def test_automatic_cuts_halve_the_operations():
    # 18 equal convolutions but for the two that halve the side, and a stem of a fifth: halves
    # meet in the middle of group 2, whose second block is in one stage as a whole.
    plan = make(built("resnet20"), settings(stages=2))
    assert plan.cuts == ["group2_block1_relu"]


def test_names_given_are_taken_and_priced():
    plan = make(chain(4), settings(stages=2, cuts="layer0", microbatches=4))
    assert plan.cuts == ["layer0"]
    assert [(stage.first, stage.last, stage.layers) for stage in plan.stages] == [
        ("layer0", "layer0", 1),
        ("layer1", "layer3", 3),
    ]
    assert [stage.share for stage in plan.stages] == pytest.approx([0.25, 0.75])


def test_a_device_has_the_memory_of_all_its_virtual_stages():
    more = {"virtual_stages": 2, "microbatches": 4}
    plan = make(chain(8), settings(stages=2, cuts="layer0,layer1,layer4", **more))
    one, two, three, four = (stage.memory_bytes for stage in plan.stages)
    assert plan.memory_bytes == max(one + three, two + four) > max(one, two, three, four)


def test_stages_add_up_to_the_model():
    model = built("resnet20")
    (whole,) = costs.stage_costs([model], model.inputs[0])
    stages = make(model, settings(stages=4)).stages
    assert sum(stage.parameters for stage in stages) == model.count_params()
    assert sum(stage.flops for stage in stages) == whole.flops
    assert sum(stage.layers for stage in stages) == whole.layers
    assert sum(stage.activation_bytes for stage in stages) == whole.activation_bytes
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    assert stages[-1].output_bytes == 4 * 10


def test_equal_stages_have_the_bubble_of_the_formula():
    plan = make(chain(4), settings(stages=4, microbatches=8))
    assert plan.bubble == schedule.bubble(8, 4)
    assert plan.idle == pytest.approx(plan.bubble)
    assert plan.speedup == pytest.approx(schedule.speedup(8, 4))
    assert plan.speedup_over_naive == pytest.approx(schedule.speedup(8, 4))
    assert plan.ideal_speedup == 4
    assert (plan.step_seconds, plan.all_reduce_seconds) == (None, None)
    assert (plan.microbatch_size, plan.times) == (4, "flops")


def test_replicas_multiply_and_one_stage_has_no_bubble():
    plan = make(chain(2), settings(strategy="mirrored", replicas=4, accumulate=2))
    assert (plan.speedup, plan.speedup_over_naive, plan.bubble) == (pytest.approx(4), 1, 0)
    assert plan.devices == [["CPU:0"], ["CPU:1"], ["CPU:2"], ["CPU:3"]]
    assert (plan.microbatch_size, plan.cuts, plan.suggestion) == (4, [], None)
    assert plan.limit == "nothing much"


# --- memory ---


def sizes(**given: Any) -> list[int]:
    plan = make(chain(4), settings(**given))
    return [stage.memory_bytes for stage in plan.stages]


def test_memory_is_weights_and_what_the_schedule_holds():
    row = 4 * WIDTH  # of one example, in or out of a layer
    # Two layers each: weight, gradient, two sums, momentum; two inputs. A pass has gradients.
    fixed = 2 * 5 * WEIGHTS + 8 * row
    held = [2, 1]
    expected = [fixed + count * 8 * 2 * row for count in held]
    assert sizes(stages=2, microbatches=4) == expected
    expected = [fixed + 4 * 8 * 2 * row] * 2
    assert sizes(stages=2, microbatches=4, microbatch_schedule="gpipe") == expected
    expected = [2 * 3 * WEIGHTS + 32 * 2 * row] * 2
    assert sizes(stages=2) == expected


def test_memory_by_optimizer_average_and_precision():
    plain = sizes(stages=4)[0]
    assert sizes(stages=4, train={"optimizer": "adamw"})[0] - plain == WEIGHTS
    assert sizes(stages=4, train={"ema_decay": 0.9})[0] - plain == WEIGHTS
    assert sizes(stages=4, train={"lookahead": 5})[0] - plain == WEIGHTS
    assert sizes(stages=4, precision="float64")[0] - plain == 3 * WEIGHTS
    assert sizes(stages=4, precision="mixed_bfloat16")[0] - plain == WEIGHTS // 2


def test_remat_takes_less():
    model = built("resnet20")
    plain, less = (
        [stage.memory_bytes for stage in make(model, settings(stages=2, remat=remat)).stages]
        for remat in (False, True)
    )
    # On logical CPUs, both stages together take 0.49 of it, at different times.
    assert all(0.5 < two / one < 0.65 for one, two in zip(plain, less, strict=True))


def test_the_cap_moves_the_cuts():
    """1F1B holds more in the first stages, which therefore have to be smaller."""
    given: dict[str, Any] = {"stages": 2, "microbatches": 8, "batch_size": 16_384}
    free = make(chain(8), settings(**given))
    assert free.cuts == ["layer3"]
    cap = max(stage.memory_bytes for stage in free.stages) // 1_000_000
    assert cap == 5
    capped = make(chain(8), settings(memory_mb=cap, **given))
    assert capped.cuts == ["layer2"]
    assert max(stage.memory_bytes for stage in capped.stages) <= cap * 1e6


def test_what_does_not_fit_names_the_smallest_number_of_stages_that_does():
    model, given = chain(8, width=256), {"batch_size": 64, "memory_mb": 2}
    with pytest.raises(UserError) as raised:
        make(model, settings(stages=2, **given))
    needed = int(raised.value.suggestion[-1])
    assert make(model, settings(stages=needed, **given)).cuts
    with pytest.raises(UserError, match="enough"):
        make(model, settings(stages=needed - 1, **given))
    with pytest.raises(UserError, match="layer0"):
        make(model, settings(stages=2, cuts="layer0", **given))


TINY = dataclasses.replace(A100, memory_gb=0.001)


@pytest.mark.parametrize(
    ("given", "more"), [({"memory_mb": 1}, {}), ({}, {"accelerator": TINY})], ids=["cap", "device"]
)
def test_what_never_fits_says_so(given, more):
    with pytest.raises(UserError, match="parallel.remat: true"):
        make(chain(4, width=512), settings(stages=2, **given), **more)


def test_a_model_that_is_copied_whole_is_to_be_cut():
    # A layer takes 3 MB of weights and 1.5 of pictures: one fits, four do not.
    tiny = dataclasses.replace(A100, memory_gb=0.005)
    given = settings(strategy="mirrored", replicas=2)
    message = "A100-40GB: 5 MB .*; use parallel.strategy: grid, parallel.stages: 4$"
    with pytest.raises(UserError, match=message):
        make(chain(4, width=512), given, accelerator=tiny)


@pytest.mark.parametrize("by", ["flops", "measured"])
def test_a_subclassed_model_is_priced_as_a_whole(by):
    model = Subclassed(10)
    model(np.zeros((1, 32, 32, 3), np.float32))
    plan = make(model, settings(strategy="one_device", costs=by))
    (stage,) = plan.stages
    assert (stage.parameters, stage.layers, stage.share) == (30_730, 3, 1)
    assert (plan.step_seconds is None) == (by == "flops")


# --- times ---


def test_published_figures():
    given = settings(stages=2, microbatches=2, replicas=2)
    plan = make(chain(2), given, accelerator=A100)
    operations = plan.stages[0].flops
    row = 4 * WIDTH
    assert operations == 2 * WIDTH**2
    # The matrix product reads and writes a row of each of 8 examples, and reads its weights once.
    forward = max(8 * operations / (0.64 * 156e12), (8 * 2 * row + WEIGHTS) / (0.8 * 1_555e9))
    forward += 5e-6
    first = plan.stages[0]
    assert (first.forward_seconds, first.backward_seconds) == pytest.approx((forward, 2 * forward))
    copy = collective_costs.copy_seconds(8 * row, LINK)
    all_reduce = collective_costs.all_reduce_seconds(WEIGHTS, 2, LINK)
    assert plan.all_reduce_seconds == pytest.approx(all_reduce)
    orders = schedule.passes("1f1b", 2, 2)
    slots = schedule.timetable(orders, [forward] * 2, [2 * forward] * 2, [copy])
    # SGD reads a gradient, and reads and writes a weight and its momentum.
    update = 5 * WEIGHTS / (0.8 * 1_555e9)
    assert plan.step_seconds == pytest.approx(schedule.span(slots) + all_reduce + update)
    wide = 1 << 12
    slow, fast = (
        make(chain(1, wide), each, accelerator=A100).stages[0].forward_seconds or 0.0
        for each in (
            settings(strategy="one_device", batch_size=wide),
            settings(strategy="one_device", batch_size=wide, precision="mixed_bfloat16"),
        )
    )
    assert slow - 5e-6 == pytest.approx(2 * (fast - 5e-6)), "twice the peak rate"


def test_measured_times_decide(monkeypatch):
    seen: dict[str, Any] = {}

    def piece_times(pieces: Any, found: Any, **more: Any) -> list[Times]:
        seen.update(more)
        slow = ("layer0", "layer1")
        return [Times(0.003 if cost.last in slow else 0.001, 0.004) for cost in found]

    monkeypatch.setattr(measure, "piece_times", piece_times)
    given = settings(stages=2, microbatches=4, costs="measured", remat=True)
    plan = make(chain(6), given)
    assert (seen["examples"], seen["device"], seen["remat"]) == (8, "CPU:0", True)
    assert plan.times == "measured"
    by_hand = min(
        max(7 * min(k, 2) + 5 * max(k - 2, 0), 7 * max(2 - k, 0) + 5 * (6 - max(k, 2)))
        for k in range(1, 6)
    )
    worst = max(stage.share for stage in plan.stages)
    assert worst == pytest.approx(by_hand / (2 * 7 + 4 * 5))
    assert plan.stages[0].backward_seconds == pytest.approx(8 * 0.004 * plan.stages[0].layers)


def test_pieces_are_really_timed():
    model = built("resnet8")
    kinds = []
    given = settings(stages=3, microbatches=4, costs="measured")
    plan = make(model, given, on_progress=lambda done, total: kinds.append((done, total)))
    assert kinds == [(done, 10) for done in range(11)]
    assert plan.step_seconds and plan.step_seconds > 0
    for stage in plan.stages:
        assert stage.forward_seconds and stage.backward_seconds
        # ResNet-8's 25 MFLOP a picture: no CPU does that in a microsecond, none needs a second.
        assert 8e-6 < stage.forward_seconds < 8


# --- suggestions ---


# Eight layers of 1024 x 1024: with gradient and momentum 12.6 MB each, which is 101 MB together.
LARGE: dict[str, Any] = {"memory_mb": 100}


def large() -> keras.Model:
    return chain(8, width=1024)


def test_a_faster_topology_is_suggested():
    plan = make(large(), settings(stages=2, microbatches=2, **LARGE), available=4)
    better = plan.suggestion
    assert better and (better.replicas, better.stages, better.microbatches) == (2, 2, 8)
    asked = settings(replicas=2, stages=2, microbatches=8, **LARGE)
    assert make(large(), asked).speedup == pytest.approx(better.speedup)
    assert make(large(), asked, available=4).suggestion is None


def test_replicas_take_the_place_of_stages_where_the_model_fits_into_a_device():
    plan = make(chain(8), settings(stages=4, microbatches=8), available=4)
    better = plan.suggestion
    assert better and (better.strategy, better.replicas, better.stages) == ("grid", 4, 1)
    assert (better.microbatches, better.cuts) == (1, "auto")
    asked = make(chain(8), settings(replicas=4))
    assert better.speedup == pytest.approx(asked.speedup) == 4
    assert better.memory_bytes == asked.stages[0].memory_bytes
    assert asked.suggestion is None


def test_one_device_is_told_of_the_others():
    plan = make(chain(4), settings(strategy="one_device"), available=4)
    better = plan.suggestion
    assert better and (better.strategy, better.replicas, better.stages) == ("mirrored", 4, 1)
    assert make(chain(4), settings(strategy="one_device"), available=1).suggestion is None


def test_an_all_reduce_that_takes_too_long_speaks_for_stages():
    slow = dataclasses.replace(A100, link_gb_per_second=0.01)
    plan = make(large(), settings(strategy="one_device"), available=2, accelerator=slow)
    better = plan.suggestion
    assert better is None or better.replicas == 1


def test_suggested_are_only_what_divides_the_batch_and_devices_that_are_there():
    given = settings(stages=2, microbatches=1, batch_size=6, **LARGE)
    better = make(large(), given, available=3).suggestion
    assert better and better.stages == 3 and 6 % better.microbatches == 0
    two = make(large(), settings(stages=2, microbatches=8, **LARGE), available=2)
    assert two.suggestion is None, "eight are four a stage: enough"


def test_what_the_rules_refuse_is_not_suggested():
    given = settings(strategy="mirrored", replicas=2, batch_size=2)
    assert make(chain(4), given, available=8).suggestion is None
    named = settings(stages=2, cuts="layer0", microbatches=4, memory_mb=150)
    better = make(large(), named, available=2).suggestion
    assert better and better.cuts == "auto"


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [("4xA100-40GB", 4, "A100-40GB"), ("H100-80GB", 1, "H100-80GB"), ("2×t4-16gb", 2, "T4-16GB")],
)
def test_devices_by_name(text, count, name):
    found = accelerators.parse(text)
    assert (found[0], found[1].name) == (count, name)


@pytest.mark.parametrize(
    ("text", "hosts", "devices", "name"),
    [
        ("8", 1, 8, None),
        ("4x8", 4, 8, None),
        ("4xV100-32GB", 1, 4, "V100-32GB"),
        ("8x8xH100-80GB", 8, 8, "H100-80GB"),
        ("2 × 4 × t4-16gb", 2, 4, "T4-16GB"),
        ("A100-40GB", 1, 1, "A100-40GB"),
    ],
)
def test_hosts_and_devices(text, hosts, devices, name):
    found = accelerators.parse_cluster(text)
    assert (found.hosts, found.devices) == (hosts, devices)
    assert (found.accelerator and found.accelerator.name) == name


@pytest.mark.parametrize("text", ["", "0", "0x4", "4x0xT4-16GB", "4xT4", "2x2x2xT4-16GB", "-1"])
def test_hosts_that_are_no_hosts(text):
    with pytest.raises(UserError) as raised:
        accelerators.parse_cluster(text)
    assert raised.value.setting == "--devices"


@pytest.mark.parametrize("text", ["", "4xA1000", "0xA100-40GB", "A100-40GBx4", "x", "4 x"])
def test_devices_that_are_not_known(text):
    with pytest.raises(UserError) as caught:
        accelerators.parse(text)
    assert caught.value.setting == "--devices"
