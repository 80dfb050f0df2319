"""Pictures that other people have: decoded as Pillow decodes them, whatever their file is."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from stagecraft.trainer_module import decoding, preprocessing

HEIGHT, WIDTH = 30, 40
X, Y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
PIXELS = np.stack([X * 6, Y * 8, X * 3], axis=-1).astype(np.uint8)
PICTURE = Image.fromarray(PIXELS)
ROUNDING = 6
"""TensorFlow's JPEG decoder has a faster transform than Pillow's: both round."""


def file_of(picture: Image.Image, kind: str, **arguments) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **arguments)
    return stream.getvalue()


def decoded(data: bytes, *shape: int, **arguments) -> np.ndarray:
    return decoding.decode(tf.constant([data]), shape, **arguments).numpy()[0].astype(int)


def by_pillow(data: bytes, mode: str) -> np.ndarray:
    picture = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return np.array(picture.convert(mode)).astype(int).reshape(*picture.size[::-1], -1)


@pytest.mark.parametrize("big_end", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_upright(orientation, big_end):
    exif = Image.Exif()
    exif.endian = ">" if big_end else "<"
    exif[0x010F], exif[0x0112] = "a maker", orientation
    data = file_of(PICTURE, "JPEG", quality=95, exif=exif.tobytes(), comment=b"taken here")
    expected = by_pillow(data, "RGB")
    assert np.abs(decoded(data, *expected.shape) - expected).max() < ROUNDING
    assert decoding.size_fn(3)(data).numpy().tolist() == [*expected.shape[:2]]


@pytest.mark.parametrize(
    "exif",
    [b"", b"II", b"MM\0*\0\0\xff\xff", b"II*\0\x08\0\0\0\xff\xff\x12\x01", b"\0" * 40],
    ids=["empty", "short", "no directory", "no entries", "zeros"],
)
def test_a_broken_exif_changes_nothing(exif):
    data = file_of(PICTURE, "JPEG", exif=b"Exif\0\0" + exif)
    plain = decoded(file_of(PICTURE, "JPEG"), HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(decoded(data, HEIGHT, WIDTH, 3), plain)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *(("JPEG", given) for given in ("L", "RGB", "CMYK")),
        *(("PNG", given) for given in ("L", "LA", "RGB", "RGBA", "P")),
        *(("BMP", given) for given in ("L", "RGB", "RGBA", "P")),
        *(("GIF", given) for given in ("L", "P")),
    ],
)
def test_modes_of_files(kind, given, mode):
    data = file_of(PICTURE.convert(given), kind)
    expected = by_pillow(data, mode)
    difference = np.abs(decoded(data, *expected.shape) - expected).max()
    assert difference < (ROUNDING if kind == "JPEG" else 2)  # weights of grey round


def test_the_first_frame_of_a_gif():
    black = Image.new("RGB", PICTURE.size)
    data = file_of(PICTURE, "GIF", save_all=True, append_images=[black, black])
    np.testing.assert_array_equal(decoded(data, HEIGHT, WIDTH, 3), by_pillow(data, "RGB"))


def test_values_of_16_bits():
    values = (np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) * 50).astype(np.uint16)
    data = file_of(Image.fromarray(values), "PNG")
    shape = (HEIGHT, WIDTH, 1)
    np.testing.assert_array_equal(decoded(data, *shape, dtype=tf.uint16)[..., 0], values)
    np.testing.assert_array_equal(decoded(data, *shape)[..., 0], values >> 8)
    for kind in ("PNG", "BMP"):  # 8 bits among them
        wide = decoded(file_of(PICTURE, kind), HEIGHT, WIDTH, 3, dtype=tf.uint16)
        np.testing.assert_array_equal(wide, PIXELS.astype(int) * 257)


def test_moments_of_16_bits(monkeypatch):
    """int32 does not hold a square; 12 bits tell the moments."""
    monkeypatch.setattr(
        preprocessing.tft, "sum", lambda x, reduce_instance_dims: tf.reduce_sum(x, axis=0)
    )
    values = np.random.default_rng(0).integers(0, 2**16, (4, 200, 200, 1), np.uint16)
    mean, variance = preprocessing.moments(tf.constant(values))
    found = preprocessing.normalise(tf.constant(values), mean, variance).numpy()
    assert abs(found.mean()) < 16 / values.std()
    assert abs(found.std() - 1) < (16 / values.std()) ** 2


@pytest.mark.parametrize("fit", decoding.FITS)
@pytest.mark.parametrize("size", [(15, 20), (10, 30), (64, 64), (30, 40), (1, 1)])
def test_pictures_get_the_size(fit, size):
    flat = Image.new("RGB", (WIDTH, HEIGHT), (200, 100, 50))
    found = decoded(file_of(flat, "PNG"), *size, 3, fit=fit)
    assert found.shape == (*size, 3)
    inside = found[size[0] // 2, size[1] // 2]
    np.testing.assert_array_equal(inside, [200, 100, 50])
    if size == (30, 40):
        exact = decoded(file_of(PICTURE, "PNG"), *size, 3, fit=fit)
        np.testing.assert_array_equal(exact, PIXELS)
    borders = {tuple(found[0, 0]), tuple(found[-1, -1])}
    is_padded = fit == "pad" and abs(size[0] * WIDTH - size[1] * HEIGHT) > max(HEIGHT, WIDTH)
    assert ((0, 0, 0) in borders) == is_padded


def test_a_crop_keeps_the_middle():
    found = decoded(file_of(PICTURE, "PNG"), 30, 30, 3, fit="crop")
    np.testing.assert_array_equal(found, PIXELS[:, 5:35])


@pytest.mark.parametrize("fit", decoding.FITS)
def test_a_mask_follows_its_picture(fit):
    classes = np.zeros((HEIGHT, WIDTH), np.uint8)
    classes[8:20, 10:25] = 7
    picture = Image.fromarray(classes * 30).convert("RGB")
    shape = (15, 16, 3)
    pixels = decoded(file_of(picture, "PNG"), *shape, fit=fit)[..., 0]
    data = tf.constant([file_of(Image.fromarray(classes), "PNG")])
    mask = decoding.decode_masks(data, [*shape[:2], 1], fit=fit).numpy()[0, ..., 0]
    assert {*np.unique(mask)} <= {0, 7}  # no classes between
    assert np.mean((pixels > 105) != (mask == 7)) < 0.1  # half of a pixel at the edges


@pytest.mark.parametrize("mode", ["P", "1", "I;16", "RGB", "LA"])
def test_a_mask_that_would_change_its_classes_is_refused(mode):
    values = Image.fromarray(PIXELS[..., 0].astype(np.uint16))
    data = file_of(values if mode == "I;16" else PICTURE.convert(mode), "PNG")
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoding.size_fn(1, True)(data)
    with pytest.raises(tf.errors.InvalidArgumentError):
        decoding.decode_masks(tf.constant([data]), (HEIGHT, WIDTH, 1))


JPEG = file_of(PICTURE, "JPEG")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a text",
        JPEG[:2],
        JPEG[: len(JPEG) // 2],
        file_of(PICTURE, "PNG")[:-30],
        file_of(PICTURE, "BMP")[:200],
        file_of(PICTURE, "GIF")[:200],
        file_of(PICTURE.convert("1"), "BMP"),
        file_of(PICTURE, "TIFF"),
    ],
)
def test_damaged_files_are_errors(data):
    with pytest.raises(tf.errors.OpError):
        decoding.size_fn(3)(data)
    with pytest.raises(tf.errors.OpError):
        decoding.decode(tf.constant([data]), (HEIGHT, WIDTH, 3))


def test_another_size_without_a_fit_is_an_error():
    with pytest.raises(tf.errors.OpError):
        decoding.decode(tf.constant([JPEG]), (HEIGHT, WIDTH + 1, 3))
