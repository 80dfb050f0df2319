import numpy as np
import pytest
import tensorflow as tf

from stagecraft.schemas import features
from stagecraft.schemas.features import MissingFeatureError
from stagecraft.trainer_module import preprocessing


def _bytes(images: np.ndarray) -> tf.Tensor:
    return tf.constant([image.tobytes() for image in images])


@pytest.fixture(scope="module")
def layer(transform):
    return transform.transform_features_layer()


def test_a_feature_that_is_not_there_is_named():
    with pytest.raises(MissingFeatureError, match="no feature 'image'") as raised:
        preprocessing.preprocessing_fn({"picture": tf.constant([b""]), "label": 0, "id": 0})
    assert raised.value.missing == ("image",)
    assert raised.value.present == ("id", "label", "picture")


def test_channels_are_normalised_by_the_whole_split(training_data, transform, layer):
    given = tf.io.parse_example(training_data.serialized("train"), transform.raw_feature_spec())
    result = layer(given)
    images = tf.io.decode_raw(given["image"], tf.uint8).numpy().reshape(-1, *features.IMAGE_SHAPE)
    pixels = images.astype(np.float64)
    expected = (pixels - pixels.mean(axis=(0, 1, 2))) / pixels.std(axis=(0, 1, 2))

    assert result["image"].dtype == tf.float32
    assert result["image"].shape == (24, *features.IMAGE_SHAPE)
    np.testing.assert_allclose(result["image"], expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(result["label"], given["label"])
    np.testing.assert_array_equal(result["id"], given["id"])


def test_the_graph_tells_static_shapes_and_types(transform):
    spec = transform.transformed_feature_spec()
    assert spec == {
        "image": tf.io.FixedLenFeature([32, 32, 3], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "id": tf.io.FixedLenFeature([], tf.int64),
    }


def test_an_empty_batch_stays_empty(layer):
    assert layer({"image": tf.constant([], tf.string)})["image"].shape == (0, 32, 32, 3)


def test_one_image_is_the_same_alone_and_in_a_batch(raw, layer):
    """A request needs neither label nor id."""
    batch, alone = (layer({"image": _bytes(raw.images[part])}) for part in (slice(9), slice(4, 5)))
    assert set(batch) == {"image"}
    assert batch["image"].shape == (9, *features.IMAGE_SHAPE)
    np.testing.assert_array_equal(batch["image"][4:5], alone["image"])


@pytest.mark.parametrize("lengths", [(3071,), (6144,), (4096, 4096, 4096)])
def test_bytes_of_another_length_are_an_error(layer, lengths):
    # Three of 4,096 bytes are as long as four right ones.
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer({"image": tf.constant([b"\0" * length for length in lengths])})


def test_a_column_of_bytes_is_taken_too(raw):
    pixels = preprocessing.decode(_bytes(raw.images[:3])[:, tf.newaxis], {})
    np.testing.assert_array_equal(pixels, raw.images[:3])


def test_moments_are_exact_where_float32_is_not(monkeypatch):
    """A large and almost even split: its float32 sums would lose the variance."""
    batches = [np.full((2, 32, 32, 3), 255, np.uint8) for _ in range(3)]
    batches[0][0, 0, 0] = 254
    sums = []
    monkeypatch.setattr(
        preprocessing.tft,
        "sum",
        lambda x, reduce_instance_dims: sums.append(tf.reduce_sum(x, 0)) or tf.add_n(sums),
    )
    for batch in batches:
        mean, variance = preprocessing.moments(tf.constant(batch))
    values = np.stack(batches).astype(np.float64)
    count = values.size / 3
    np.testing.assert_allclose(mean, values.mean(axis=(0, 1, 2, 3)), rtol=1e-15)
    # E[x^2] - E[x]^2 in float64: 255 ** 2 * 2 ** -52 at most, against a variance of 1.6e-4.
    np.testing.assert_allclose(variance, np.full(3, (1 - 1 / count) / count), atol=65025 * 2**-52)


def test_a_channel_of_one_value_becomes_zero():
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[0, ..., 1:] = 10
    moments = (tf.constant([0.0, 5.0, 5.0], tf.float64), tf.constant([0.0, 25.0, 25.0], tf.float64))
    normal = preprocessing.normalise(tf.constant(pixels), *moments).numpy()
    assert np.isfinite(normal).all()
    assert not normal[..., 0].any()
    np.testing.assert_array_equal(normal[0, ..., 1:], 1)


def test_another_image_size():
    images = np.arange(96, dtype=np.uint8).reshape(2, 8, 6, 1)
    pixels = preprocessing.decode(_bytes(images), {"image_shape": [8, 6, 1]})
    np.testing.assert_array_equal(pixels, images)
    normal = preprocessing.normalise(
        pixels, tf.constant([40.0], tf.float64), tf.constant([4.0], tf.float64)
    )
    np.testing.assert_array_equal(normal, (images - 40.0) / 2)
