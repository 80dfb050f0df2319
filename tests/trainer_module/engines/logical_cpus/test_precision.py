import math
from typing import Any

import driving
import numpy as np
import pytest
from driving import GRID, MIRRORED, ONE, STAGES, label, rare

from stagecraft.trainer_module.engines.step_metrics import NonFiniteLossError

SCALE, GOOD, SKIPPED = (f"loss_scale/{name}" for name in ("scale", "good_steps", "skipped_steps"))
HALF: dict[str, Any] = {"precision": "mixed_float16"}


@pytest.mark.parametrize(
    "parallel",
    [rare(ONE), rare(MIRRORED), rare(STAGES), rare({**GRID, "zero": 1}), GRID],
    ids=label,
)
@pytest.mark.parametrize("value", [math.nan, rare(math.inf)])
def test_a_gradient_that_is_not_finite_changes_nothing(parallel, value):
    # Batch 2 is bad in its last example alone: in the last replica, turn and microbatch.
    train = {"optimizer": "adamw", "ema_decay": 0.9, "clip_norm": 1.0}
    engine = driving.make({**parallel, **HALF}, "norm", **train)
    batches = driving.feed(engine, spoilt={2: value})
    engine.train(batches, 2)
    before, copies = engine.state(), engine.replica_states()
    engine.train(batches, 1)
    after = engine.state()
    assert driving.differing(after, before) == {SCALE, GOOD, SKIPPED}
    for one, other in zip(engine.replica_states(), copies, strict=True):
        driving.assert_same_bits(one, other)
    assert after[SCALE] == before[SCALE] / 2
    assert (before[GOOD], after[GOOD], after[SKIPPED]) == (2, 0, 1)
    assert (engine.step, engine.batches) == (2, 3)

    engine.train(batches, 2)
    assert (engine.step, engine.batches) == (4, 5)
    undisturbed = engine.state()
    assert {"model/conv0/kernel", "ema/conv0/kernel"} <= driving.differing(undisturbed, after)
    driving.assert_no_drift(engine)

    second = driving.make({**parallel, **HALF}, "norm", **train)
    second.restore(after)
    assert second.batches == 3
    second.train(driving.feed(second, start=second.batches), 2)
    driving.assert_same_bits(second.state(), undisturbed)


@pytest.mark.parametrize("parallel", [ONE, rare(MIRRORED), GRID], ids=label)
def test_a_diverged_training_stops(parallel):
    engine = driving.make({**parallel, **HALF})
    before = engine.state()
    with pytest.raises(NonFiniteLossError, match="loss nan") as raised:
        # The scale is halved 15 times; at 1 it cannot be the cause.
        engine.train(
            driving.feed(engine, batches=20, spoilt=dict.fromkeys(range(20), math.nan)), 20
        )
    assert raised.value.step == 1
    assert (engine.step, engine.batches) == (0, 16)
    assert driving.differing(engine.state(), before) == {SCALE, SKIPPED}


@pytest.mark.parametrize("parallel", [ONE, GRID], ids=label)
def test_without_a_scale_a_loss_that_is_not_finite_stops_at_once(parallel):
    engine = driving.make(parallel)
    with pytest.raises(NonFiniteLossError, match="loss nan") as raised:
        engine.train(driving.feed(engine, spoilt={2: math.nan}), 6)
    assert raised.value.step == 3
    assert engine.batches == 3


@pytest.mark.parametrize("parallel", [rare(MIRRORED), STAGES], ids=label)
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_gradients_of_any_precision(parallel, precision):
    # Units of rounding, relative to the largest gradient: bfloat16 has 8 bits of fraction,
    # float16 11, float64 53. Both topologies round each example's activations in the same way;
    # kernels' gradients are sums over at most 8 * 49 positions, of which the parts are rounded
    # apart. Random signs: sqrt(8 * 49) = 20 roundings.
    unit = {"mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-11, "float64": 2.0**-53}[precision]
    loss, expected = driving.gradients(driving.make({**ONE, "precision": precision}))
    split = driving.make({**parallel, "precision": precision})
    split_loss, found = driving.gradients(split)
    assert split_loss == pytest.approx(loss, rel=max(unit, 2.0**-23))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert value.dtype == ("float64" if precision == "float64" else "float32")
        bound = 20 * unit * float(np.abs(value).max())
        np.testing.assert_allclose(found[name], value, rtol=0, atol=bound, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("parallel", [ONE, MIRRORED, STAGES], ids=label)
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_trains_in_any_precision(parallel, precision):
    engine = driving.make({**parallel, "precision": precision}, "norm", ema_decay=0.9)
    first = engine.train(driving.feed(engine, batches=1), 1).loss
    last = [engine.train(driving.feed(engine, batches=1), 1).loss for _ in range(11)][-1]
    assert last < first
    assert engine.step == 12
    kernels = {str(value.dtype) for name, value in engine.weights().items() if "kernel" in name}
    assert kernels == {"float64" if precision == "float64" else "float32"}
    assert math.isfinite(engine.evaluate(driving.dataset(2)).loss)
