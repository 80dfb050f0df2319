"""The model."""

import numpy as np
from models.model import build


def test_a_number_for_each_row():
    model = build(["area"], {"town": 3}, 1)
    rows = {"area": np.ones((4, 1), np.float32), "town": np.ones((4, 1), np.int64)}
    assert model(rows).shape == (4, 1)
