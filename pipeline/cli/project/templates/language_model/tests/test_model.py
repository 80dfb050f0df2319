"""The model."""

import numpy as np
from models.model import build


def test_a_logit_depends_on_no_later_token():
    model = build(8, 16)
    tokens = np.arange(8)[np.newaxis]
    changed = np.where(np.arange(8) < 5, tokens, 9)
    before, after = np.asarray(model(tokens)), np.asarray(model(changed))
    assert before.shape == (1, 8, 16)
    # The same operations on the same numbers.
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert not np.array_equal(before[:, 5:], after[:, 5:])
