import keras
import numpy as np
import pytest

from stagecraft.trainer_module.models.layers import own_layers
from stagecraft.trainer_module.models.layers.own_layers import EPSILON, Whitening


def _images(count: int = 200, channels: int = 3, side: int = 12) -> np.ndarray:
    """Neighbouring pixels and channels are correlated, as in photographs."""
    noise = np.random.default_rng(0).normal(size=(count, side, side, channels))
    smooth = noise + np.roll(noise, 1, axis=1) + np.roll(noise, 1, axis=2)
    return (smooth + 3 * smooth.mean(axis=-1, keepdims=True)).astype(np.float32)


def _adapted(images: np.ndarray, size: int = 2) -> Whitening:
    layer = Whitening(size)
    layer.build(images.shape)
    layer.adapt(images)
    return layer


@pytest.mark.parametrize(("size", "channels"), [(2, 3), (1, 3), (3, 1)])
def test_the_outputs_are_uncorrelated_and_have_the_same_variance(size, channels):
    images = _images(channels=channels)
    layer = _adapted(images, size)
    outputs = np.asarray(layer(images), np.float64)
    count = size**2 * channels
    side = 12 - size + 1
    assert outputs.shape == (200, side, side, 2 * count)
    flat = outputs.reshape(-1, 2 * count)
    kernel = np.asarray(layer.kernel)
    np.testing.assert_array_equal(kernel[..., count:], -kernel[..., :count])
    # On some processors, a convolution adds the products of its last channels in another order.
    np.testing.assert_allclose(flat[:, count:], -flat[:, :count], rtol=0, atol=1e-5)
    found = flat[:, :count].T @ flat[:, :count] / len(flat)
    values = np.linalg.eigvalsh(own_layers.covariance(images, size))[::-1]
    # Sums of up to 27 float32 products, scaled by up to 1 / sqrt(EPSILON).
    np.testing.assert_allclose(found, np.diag(values / (values + EPSILON)), rtol=0, atol=1e-5)
    assert (np.diff(values) <= 0).all()


def test_the_covariance_is_that_of_each_patch():
    images = _images(2, side=4)
    patches = [
        image[row : row + 2, column : column + 2].ravel()
        for image in images
        for row in range(3)
        for column in range(3)
    ]
    expected = np.mean([np.outer(patch, patch) for patch in np.float64(patches)], axis=0)
    np.testing.assert_allclose(own_layers.covariance(images, 2), expected, rtol=1e-12)


def test_a_new_layer_shows_patches_as_they_are():
    images = _images(3)
    layer = Whitening()
    outputs = np.asarray(layer(images))
    assert not layer.adapted
    expected = {
        images[0, 4 + row, 5 + col, c] for row in (0, 1) for col in (0, 1) for c in range(3)
    }
    scaled = outputs[0, 4, 5, :12] * np.float32(np.sqrt(1 + EPSILON))
    np.testing.assert_allclose(sorted(scaled), sorted(expected), rtol=1e-6)


def test_the_same_images_give_the_same_kernel_with_signs():
    images = _images()
    one, two = (np.asarray(_adapted(images.copy()).kernel) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    first = one.reshape(12, 24)[:, :12]
    assert (first[np.abs(first).argmax(axis=0), range(12)] > 0).all()


@pytest.mark.parametrize("images", [np.zeros((2, 4, 4, 3)), np.ones((2, 4, 4, 1))])
def test_constant_images_give_a_finite_kernel(images):
    layer = _adapted(images)
    assert np.isfinite(np.asarray(layer.kernel)).all()
    # No variance is scaled up by more than 1 / sqrt(EPSILON).
    norms = np.linalg.norm(np.asarray(layer.kernel).reshape(-1, layer.kernel.shape[-1]), axis=0)
    assert norms.max() <= (1 + 1e-6) / np.sqrt(EPSILON)


def test_training_changes_the_bias_alone():
    layer = _adapted(_images())
    assert [variable.name for variable in layer.trainable_variables] == ["bias"]
    assert [variable.name for variable in layer.non_trainable_variables] == ["kernel"]


def test_a_saved_copy_is_adapted_as_well(tmp_path):
    images = _images(2)
    model = keras.Sequential([keras.Input(images.shape[1:]), Whitening()])
    model.layers[0].adapt(images)
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    assert copy.layers[0].adapted
    np.testing.assert_array_equal(copy(images), model(images))
