"""Losses of ``train.loss`` on every topology, in float64."""

import functools
from typing import Any

import driving
import numpy as np
import pytest

FOCAL = {"loss": "categorical_focal_crossentropy", "loss_args": '{"gamma": 1.5}'}


@functools.cache
def trained(topology: str = "") -> dict[str, np.ndarray]:
    parallel: dict[str, Any] = {
        "": driving.ONE,
        "mirrored": driving.MIRRORED,
        "stages": driving.STAGES,
    }[topology]
    engine = driving.make({"precision": "float64", **parallel}, **FOCAL)
    engine.train(driving.feed(engine), driving.STEPS)
    evaluated = engine.evaluate(driving.dataset())
    return engine.state() | {"loss": np.array(evaluated.loss)}


@pytest.mark.parametrize("topology", ["mirrored", driving.slow("stages")])
def test_a_loss_of_keras_on_every_topology(topology):
    found, expected = trained(topology), trained()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-11, err_msg=name)
