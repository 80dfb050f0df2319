"""The model and its task."""

import numpy as np
from models.model import build
from models.task import TAXI


def test_a_logit_for_each_trip():
    arguments = TAXI.sample_arguments
    model = build(**arguments)
    trips = {name: np.zeros((4, 1), np.float32) for name in arguments["numeric"]}
    trips |= {name: np.zeros((4, 1), np.int64) for name in arguments["categorical"]}
    assert model(trips).shape == (4, 1)
