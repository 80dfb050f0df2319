"""Orthogonalisation of matrices without a singular value decomposition."""

from __future__ import annotations

import tensorflow as tf

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the polynomial ``a x + b x³ + c x⁵`` (Jordan et al. 2024)."""

EPSILON = 1e-7
"""Added to norms: a matrix of zeros stays one."""


def norm(matrices: tf.Tensor) -> tf.Tensor:
    """Frobenius norms ``[..., 1, 1]`` of matrices ``[..., rows, columns]``."""
    return tf.norm(matrices, axis=(-2, -1), keepdims=True)


def orthogonalize(matrices: tf.Tensor, iterations: int) -> tf.Tensor:
    """Matrices with the same singular vectors, and singular values of about 1.

    It is the quintic Newton-Schulz iteration of Jordan et al. 2024, "Muon: an optimizer for hidden
    layers in neural networks", https://kellerjordan.github.io/posts/muon/. An iteration applies the
    polynomial of :data:`COEFFICIENTS` to each singular value. It is steep at 0, and does not
    converge: after five iterations, singular values between 0.002 and 1 of the norm are between
    0.68 and 1.21. Products of matrices are those of the shorter side.

    Args:
        matrices: ``[..., rows, columns]``, float32 or float64.

    Returns:
        The same shape and dtype.
    """
    a, b, c = COEFFICIENTS
    found = matrices / (norm(matrices) + EPSILON)
    wide = matrices.shape[-2] <= matrices.shape[-1]
    for _ in range(iterations):
        square = tf.matmul(found, found, transpose_a=not wide, transpose_b=wide)
        polynomial = b * square + c * tf.matmul(square, square)
        product = tf.matmul(polynomial, found) if wide else tf.matmul(found, polynomial)
        found = a * found + product
    return found
