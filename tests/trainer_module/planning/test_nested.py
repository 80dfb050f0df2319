"""Plans of models with several tensors across a cut, and with tied weights."""

import dataclasses
from typing import Any

import keras
import pytest
from chains import A100, IDEAL, LINK, WEIGHTS, WIDTH, make, settings
from keras import layers

from stagecraft.trainer_module.planning import collective_costs, cost_model, device_times

ROW = 4 * WIDTH


def u_net(depth: int = 3) -> keras.Model:
    """Dense layers of equal cost; a skip joins the first with the last, and so on."""
    inputs = hidden = keras.Input((WIDTH,))
    skips = []
    for level in range(depth):
        hidden = layers.Dense(WIDTH, use_bias=False, name=f"down{level}")(hidden)
        skips.append(hidden)
    for level in range(depth):
        hidden = layers.Dense(WIDTH, use_bias=False, name=f"up{level}")(hidden)
        hidden = layers.Add(name=f"join{level}")([hidden, skips.pop()])
    return keras.Model(inputs, hidden, name="u_net")


def tied(between: int = 4) -> keras.Model:
    """The first and the last layer have one weight."""
    shared = layers.Dense(WIDTH, use_bias=False, name="shared")
    inputs = keras.Input((WIDTH,))
    hidden = shared(inputs)
    for level in range(between):
        hidden = layers.Dense(WIDTH, use_bias=False, name=f"dense{level}")(hidden)
    return keras.Model(inputs, shared(hidden), name="tied")


def test_a_u_net_is_cut_in_its_middle():
    plan = make(u_net(), settings(stages=2, microbatches=4))
    # After down2, the skips of down0 and down1 cross besides it; a byte counts as an operation.
    assert plan.cuts == ["down2"]
    assert [stage.output_bytes for stage in plan.stages] == [3 * ROW, ROW]
    assert [stage.share for stage in plan.stages] == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_slow_link_moves_the_cuts_to_fewer_tensors():
    given = settings(stages=2)
    fast = make(u_net(), given, accelerator=IDEAL)
    slow = make(u_net(), given, accelerator=dataclasses.replace(IDEAL, link_gb_per_second=0.1))
    assert fast.stages[0].output_bytes == 3 * ROW
    assert slow.stages[0].output_bytes == ROW


def test_the_copies_of_all_tensors_take_time():
    def step(cuts: str) -> float:
        plan = make(u_net(), settings(stages=2, cuts=cuts), accelerator=IDEAL)
        assert plan.step_seconds is not None
        return plan.step_seconds

    # One microbatch passes through both stages; its copies go there and back. After down2, the
    # larger stage updates three layers, after down0 five.
    copies = 32 * 2 * ROW / LINK.rate
    updates = 2 * 5 * WEIGHTS / device_times.bytes_per_second(IDEAL)
    assert step("down2") - step("down0") == pytest.approx(2 * copies - updates)


def test_a_tied_weight_counts_once_and_is_traffic():
    model = tied()
    weight = 4 * WIDTH**2
    plan = make(model, settings(stages=3, microbatches=4, cuts="dense0,dense2"))
    (found,) = plan.tied
    assert (found.path, found.stages, found.bytes) == ("shared/kernel", [0, 2], 2 * weight)
    assert "tied weights  shared/kernel of stages 0 and 2: 32.8 kB between stages" in str(plan)
    assert [stage.parameters for stage in plan.stages] == [2 * WIDTH**2] * 3
    whole = make(model, settings(strategy="one_device"))
    assert whole.tied == [] and whole.stages[0].parameters == model.count_params()
    assert make(model, settings(stages=3)).cuts


def test_the_traffic_of_a_tied_weight_takes_time(monkeypatch):
    def step() -> Any:
        given = settings(stages=2, replicas=2, cuts="dense1")
        return make(tied(), given, accelerator=A100).step_seconds

    with_tied = step()
    monkeypatch.setattr(cost_model.CostModel, "tied", lambda self, starts: [])
    assert with_tied - step() == pytest.approx(
        collective_costs.copy_seconds(2 * 4 * WIDTH**2, LINK)
    )


def test_the_all_reduce_sends_a_tied_gradient_once():
    given = settings(stages=2, replicas=2, cuts="dense3")
    plan = make(tied(), given, accelerator=A100)
    assert plan.all_reduce_seconds == pytest.approx(
        collective_costs.all_reduce_seconds(5 * 4 * WIDTH**2, 2, LINK)
    )
