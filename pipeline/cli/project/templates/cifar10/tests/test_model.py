"""The model."""

import numpy as np
from models.model import build


def test_a_logit_for_each_class():
    model = build((32, 32, 3), 10)
    logits = model(np.zeros((4, 32, 32, 3), np.float32))
    assert logits.shape == (4, 10)
