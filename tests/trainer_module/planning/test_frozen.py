from typing import Any

import keras
import pytest
from chains import A100, LINK, WEIGHTS, WIDTH, chain, make, settings
from keras import layers

from stagecraft.trainer_module.models import costs
from stagecraft.trainer_module.pipeline_parallel import partition
from stagecraft.trainer_module.planning import collective_costs, planner

ROW = 4 * WIDTH


def frozen(count: int, *numbers: int) -> keras.Model:
    """A chain of which some layers are not trained."""
    model = chain(count)
    for number in numbers:
        model.get_layer(f"layer{number}").trainable = False
    return model


def test_what_is_trained_and_what_is_frozen():
    inputs = keras.Input((8, 8, 3))
    inner = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.ReLU()])
    inner.trainable = False
    hidden = layers.BatchNormalization(name="norm")(inner(inputs))
    model = keras.Model(inputs, layers.Conv2D(2, 1)(hidden))
    pieces = partition.split(model, [inner.name, "norm"])
    found = costs.stage_costs(pieces, inputs)
    assert [(cost.parameters, cost.trainable, cost.frozen) for cost in found] == [
        (112, 0, 112),
        (16, 8, 0),  # moving statistics are not frozen
        (10, 10, 0),
    ]


def test_frozen_and_trained_pieces_are_of_two_kinds():
    model = frozen(2, 0)
    found = costs.stage_costs(partition.split(model, ["layer0"]), model.inputs[0])
    assert found[0].kind != found[1].kind


def test_frozen_layers_in_front_have_no_backward_pass():
    plan = make(frozen(4, 0, 1), settings(stages=2, cuts="layer1"))
    first, second = plan.stages
    assert first.backward_share == 0 and second.backward_share == pytest.approx(2 / 3)
    assert (first.share, second.share) == (pytest.approx(1 / 4), pytest.approx(3 / 4))
    assert (first.parameters, first.trainable_parameters) == (2 * WIDTH**2, 0)
    assert second.trainable_parameters == 2 * WIDTH**2


def test_a_frozen_layer_behind_a_trained_one_passes_the_gradient_on():
    plan = make(frozen(2, 1), settings(stages=2, cuts="layer0"))
    first, second = plan.stages
    shares = (first.backward_share, second.backward_share)
    assert shares == (pytest.approx(2 / 3), pytest.approx(1 / 2))


def test_what_is_computed_again_is_computed_for_a_backward_pass():
    plan = make(frozen(3, 0, 2), settings(stages=3, remat=True))
    shares = [stage.backward_share for stage in plan.stages]
    assert shares == [0, pytest.approx(3 / 4), pytest.approx(2 / 3)]


def test_the_cuts_know_what_goes_back():
    # Forward 1 each, backward 2: 12 units; four layers of a frozen half are as long as one or two.
    free = make(chain(8), settings(stages=2))
    half = make(frozen(8, 0, 1, 2, 3), settings(stages=2))
    assert (free.cuts, half.cuts) == (["layer3"], ["layer4"])


def sizes(model: keras.Model, **given: Any) -> list[int]:
    return [stage.memory_bytes for stage in make(model, settings(**given)).stages]


def test_memory_without_gradients_slots_and_activations():
    model = frozen(4, 0, 1)
    # In front: the weights; of one example at a time, what goes into a layer and comes out of it.
    # Behind: weight, gradient, momentum; what comes into two layers.
    expected = [2 * WEIGHTS + 32 * 2 * ROW, 2 * 3 * WEIGHTS + 32 * 2 * ROW]
    assert sizes(model, stages=2, cuts="layer1") == expected
    # Microbatches: sums of gradients, gradients of a pass; one is held at the end, none in front.
    expected = [2 * WEIGHTS + 8 * 2 * ROW, 2 * 5 * WEIGHTS + 8 * (2 + 1) * ROW]
    assert sizes(model, stages=2, cuts="layer1", microbatches=4) == expected
    (whole,) = sizes(model, strategy="one_device")
    assert whole == 4 * WEIGHTS + 2 * 2 * WEIGHTS + 32 * (2 + 2) * ROW


def test_frozen_layers_behind_keep_their_activations():
    (whole,) = sizes(frozen(2, 1), strategy="one_device")
    assert whole == 2 * WEIGHTS + 2 * WEIGHTS + 32 * 2 * ROW


def test_gradients_alone_are_summed():
    given = settings(strategy="mirrored", replicas=2)
    plan = make(frozen(4, 0, 1), given, accelerator=A100)
    assert plan.all_reduce_seconds == pytest.approx(
        collective_costs.all_reduce_seconds(2 * WEIGHTS, 2, LINK)
    )


def test_no_gradient_travels_to_a_stage_that_trains_nothing():
    given = settings(stages=2, cuts="layer0")
    free, half = (make(model, given, accelerator=A100) for model in (chain(2), frozen(2, 0)))
    passes = [stage.forward_seconds or 0 for stage in half.stages]
    back = half.stages[1].backward_seconds or 0
    copy = collective_costs.copy_seconds(32 * ROW, LINK)
    update = 5 * WEIGHTS / (0.8 * 1_555e9)  # of the stage that trains
    assert half.step_seconds == pytest.approx(sum(passes) + back + copy + update)
    assert free.step_seconds == pytest.approx(3 * sum(passes) + 2 * copy + update)


def test_measured_pieces_in_front_have_no_backward_pass():
    plan = planner.make_plan(
        frozen(3, 0), settings(strategy="one_device", costs="measured"), ["CPU:0"]
    )
    stage = plan.stages[0]
    assert stage.forward_seconds and stage.backward_seconds
    two = make(frozen(3, 0), settings(stages=2, cuts="layer0", costs="measured"))
    assert two.stages[0].backward_seconds == 0 and two.stages[1].backward_seconds


def test_frozen_statistics_and_a_model_that_cannot_be_seen_into():
    class Tuned(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.head = layers.Dense(WIDTH, use_bias=False), layers.Dense(10)
            self.base.trainable = False

        def call(self, values: Any) -> Any:
            return self.head(self.base(values))

    model = Tuned()
    model(keras.ops.zeros((1, 32, 32, 3)))
    (stage,) = make(model, settings(strategy="one_device")).stages
    assert stage.trainable_parameters == WIDTH * 10 + 10
    # One piece, of which 192 of 842 weights are frozen: between one and two times forward.
    assert stage.backward_share == pytest.approx((2 - 192 / 842) / (3 - 192 / 842))
