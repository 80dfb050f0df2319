"""Newton-Schulz against a singular value decomposition."""

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.trainer_module.optimization.optimizers.muon import muon_optimizer


def by_svd(matrices: np.ndarray, iterations: int) -> np.ndarray:
    """The polynomial on singular values, without products of matrices."""
    a, b, c = muon_optimizer.COEFFICIENTS
    left, values, right = np.linalg.svd(matrices.astype(np.float64), full_matrices=False)
    values = values / (np.linalg.norm(values, axis=-1, keepdims=True) + muon_optimizer.EPSILON)
    for _ in range(iterations):
        values = a * values + b * values**3 + c * values**5
    return (left * values[..., None, :]) @ right


@pytest.mark.parametrize("iterations", [1, 3, 5])
@pytest.mark.parametrize("shape", [(7, 7), (5, 40), (40, 5), (3, 6, 9), (1, 8)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_the_polynomial_of_the_singular_values(shape, iterations, dtype):
    given = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = muon_optimizer.orthogonalize(tf.constant(given), iterations)
    assert found.dtype == dtype
    # An iteration multiplies what came before by up to 3.4445, and rounds sums of 40 products.
    tolerance = np.finfo(dtype).eps * 40 * muon_optimizer.COEFFICIENTS[0] ** iterations
    np.testing.assert_allclose(found, by_svd(given, iterations), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("iterations", "smallest"), [(5, 0.002), (3, 0.02)])
def test_singular_values_end_near_one(iterations, smallest):
    """Those that are at least this share of the norm; the polynomial's extrema are the bounds."""
    draw = np.random.default_rng(1)
    left, _ = np.linalg.qr(draw.standard_normal((30, 30)))
    right, _ = np.linalg.qr(draw.standard_normal((50, 30)))
    shares = np.geomspace(1.0, 2 * smallest, 30)
    shares /= np.linalg.norm(shares)
    shares = np.maximum(shares, 1.01 * smallest)
    found = muon_optimizer.orthogonalize(tf.constant(100 * (left * shares) @ right.T), iterations)
    ends = np.linalg.svd(found, compute_uv=False)
    assert ends.min() > 0.68 and ends.max() < 1.21


def test_zeros_stay_zeros():
    zeros = tf.zeros((2, 3, 4))
    np.testing.assert_array_equal(muon_optimizer.orthogonalize(zeros, 5), zeros)
