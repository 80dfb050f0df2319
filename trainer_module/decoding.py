"""Decodes pictures by TensorFlow operations, equally in checks, Transform, reports and serving.

Reads JPEG, PNG, BMP and the first frame of a GIF. Imports nothing of the trainer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

FITS = ("resize", "crop", "pad")
"""How a picture gets another size, as Keras's ``image_dataset_from_directory`` does it: stretched;
without what exceeds the proportions, in the middle of the picture (``crop_to_aspect_ratio``); or
whole, with a black border (``pad_to_aspect_ratio``)."""

_PNG, _JPEG, _BMP, _GIF = range(4)
_EXIF, _SCAN = 0xE1, 0xDA  # markers of a JPEG's segments
_ORIENTATION = 0x0112  # tag of EXIF
_UNCOMPRESSED, _BITFIELDS = 0, 3  # compressions of a BMP


def decode(
    encoded: tf.Tensor, shape: Sequence[int], *, fit: str | None = None, dtype: tf.DType = tf.uint8
) -> tf.Tensor:
    """Decodes pictures, turns them as their EXIF orientation says, and fits them into a shape.

    Args:
        encoded: string ``[n]``, the bytes of files.
        shape: height, width, channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        fit: one of ``FITS``; None: pictures of another size are an error.
        dtype: uint8, or uint16 to keep all bits of a PNG with 16 bits.

    Returns:
        ``[n, height, width, channels]``.
    """

    def one(given: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pixels = _picture(*given, shape[-1], dtype)
        return tf.ensure_shape(pixels if fit is None else _fitted(pixels, shape, fit), shape)

    given = encoded, _kinds(encoded)
    return tf.map_fn(one, given, fn_output_signature=tf.TensorSpec(shape, dtype))


def decode_masks(encoded: tf.Tensor, shape: Sequence[int], *, fit: str | None = None) -> tf.Tensor:
    """Decodes masks, without mixing the classes of neighbouring pixels.

    Args:
        encoded: string ``[n]``, grey PNGs of 8 bits; another PNG is an error.
        shape: height, width, 1.
        fit: of their pictures.

    Returns:
        uint8 ``[n, height, width, 1]``.
    """

    def one(png: tf.Tensor) -> tf.Tensor:
        pixels = _mask(png)
        if fit is not None:
            pixels = _fitted(pixels, shape, fit, tf.image.ResizeMethod.NEAREST_NEIGHBOR)
        return tf.ensure_shape(pixels, shape)

    return tf.map_fn(one, encoded, fn_output_signature=tf.TensorSpec(shape, tf.uint8))


@functools.cache
def size_fn(channels: int, is_mask: bool = False) -> Callable[[bytes], tf.Tensor]:
    """A function of a file's bytes that decodes them, and returns height and width.

    It raises ``tf.errors.OpError`` for all that :func:`decode` or :func:`decode_masks` refuse.
    """

    def size(encoded: tf.Tensor) -> tf.Tensor:
        if is_mask:
            return tf.shape(_mask(encoded))[:2]
        return tf.shape(_picture(encoded, _kinds(encoded), channels, tf.uint8))[:2]

    return tf.function(size, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


def _kinds(encoded: tf.Tensor) -> tf.Tensor:
    """The formats, int32, by their first bytes; all others count as PNG, and fail as such."""

    def begins(with_bytes: bytes) -> tf.Tensor:
        start = tf.strings.substr(encoded, 0, len(with_bytes))
        return tf.cast(tf.equal(start, with_bytes), tf.int32)

    return _JPEG * begins(b"\xff\xd8\xff") + _BMP * begins(b"BM") + _GIF * begins(b"GIF")


def _picture(encoded: tf.Tensor, kind: tf.Tensor, channels: int, dtype: tf.DType) -> tf.Tensor:
    """``[height, width, channels]``, upright."""

    def converted(pixels: tf.Tensor) -> tf.Tensor:
        pixels = _with_channels(pixels, channels)
        # As libpng widens 8 bits: 255 becomes 65535.
        return pixels if dtype == tf.uint8 else tf.cast(pixels, dtype) * 257

    def png() -> tf.Tensor:
        return tf.ensure_shape(tf.io.decode_png(encoded, channels, dtype), [None, None, channels])

    def jpeg() -> tf.Tensor:
        return converted(_upright(tf.io.decode_jpeg(encoded), _orientation(encoded)))

    def bmp() -> tf.Tensor:
        return converted(_bmp(encoded))

    def gif() -> tf.Tensor:
        return converted(tf.io.decode_image(encoded, 3, expand_animations=False))

    # Not tf.switch_case: TFT does not serialize its operation.
    found = png
    for other, branch in {_GIF: gif, _BMP: bmp, _JPEG: jpeg}.items():
        found = functools.partial(tf.cond, tf.equal(kind, other), branch, found)
    return found()


def _mask(png: tf.Tensor) -> tf.Tensor:
    """``[height, width, 1]``.

    TensorFlow turns a palette into colours, and scales values of less than 8 bits.
    """
    is_plain = tf.equal(tf.strings.substr(png, 24, 2), b"\x08\x00")  # bits, and "grey"
    return tf.ensure_shape(tf.io.decode_png(tf.where(is_plain, png, b""), 1), [None, None, 1])


def _with_channels(pixels: tf.Tensor, channels: int) -> tf.Tensor:
    """Grey or RGB as ``channels`` channels."""
    is_grey = tf.equal(tf.shape(pixels)[-1], 1)

    def grey() -> tf.Tensor:
        luma = tf.constant([[0.299], [0.587], [0.114]])  # ITU-R BT.601, as JPEG has it
        return tf.cast(tf.round(tf.tensordot(tf.cast(pixels, tf.float32), luma, 1)), pixels.dtype)

    if channels == 1:
        pixels = tf.cond(is_grey, lambda: pixels, grey)
    else:
        pixels = tf.cond(is_grey, lambda: tf.repeat(pixels, 3, axis=-1), lambda: pixels)
        if channels == 4:
            opaque = tf.fill(tf.shape(pixels[..., :1]), tf.constant(255, pixels.dtype))
            pixels = tf.concat([pixels, opaque], axis=-1)
    return tf.ensure_shape(pixels, [None, None, channels])


def _bytes(encoded: tf.Tensor, start: int | tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """int32; fewer at the end of the file."""
    found = tf.io.decode_raw(tf.strings.substr(encoded, start, count), tf.uint8)
    return tf.cast(found, tf.int32)


def _number(digits: tf.Tensor) -> tf.Tensor:
    """An unsigned number of bytes ``[…, n]``, the least first."""
    return tf.reduce_sum(digits * 256 ** tf.range(tf.shape(digits)[-1]), axis=-1)


def _orientation(jpeg: tf.Tensor) -> tf.Tensor:
    """The EXIF orientation of a JPEG, 1 to 8; 1 if it has none (EXIF 2.32, section 4.5.4)."""
    length = tf.strings.length(jpeg)

    def goes_on(at: tf.Tensor) -> tf.Tensor:
        def is_other() -> tf.Tensor:
            head = _bytes(jpeg, at, 10)
            is_exif = tf.reduce_all(tf.equal(head[4:], list(b"Exif\0\0")))
            is_exif &= tf.equal(head[1], _EXIF)
            return tf.equal(head[0], 255) & tf.not_equal(head[1], _SCAN) & ~is_exif

        return tf.cond(at + 10 <= length, is_other, lambda: False)

    def following(at: tf.Tensor) -> list[tf.Tensor]:
        return [at + 2 + _number(_bytes(jpeg, at + 2, 2)[::-1])]

    # A segment: 255, its marker, its length (big end first), its content.
    [at] = tf.while_loop(goes_on, following, [tf.constant(2)])
    at = tf.minimum(at, length)

    def found() -> tf.Tensor:
        exif = _bytes(jpeg, at + 10, _number(_bytes(jpeg, at + 2, 2)[::-1]) - 8)
        exif = tf.concat([exif, tf.zeros([8], tf.int32)], axis=0)  # if it is cut
        order = tf.where(tf.equal(exif[0], ord("I")), 1, -1)  # of the bytes of a number
        first = _number(exif[4:8][::order])
        count = _number(exif[first : first + 2][::order])
        entries = exif[first + 2 : first + 2 + 12 * count]
        entries = tf.reshape(entries[: tf.size(entries) // 12 * 12], [-1, 12])
        is_wanted = tf.equal(_number(entries[:, :2][:, ::order]), _ORIENTATION)
        values = tf.where(is_wanted, _number(entries[:, 8:10][:, ::order]), 0)
        value = tf.reduce_max(tf.concat([values, [0]], axis=0))
        return tf.where((value >= 1) & (value <= 8), value, 1)

    has_exif = tf.cond(
        at + 18 <= length, lambda: tf.equal(_bytes(jpeg, at + 1, 1)[0], _EXIF), lambda: False
    )
    return tf.cond(has_exif, found, lambda: 1)


def _upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Undoes an EXIF orientation."""

    def among(*values: int) -> tf.Tensor:
        return tf.reduce_any(tf.equal(orientation, list(values)))

    def swapped() -> tf.Tensor:
        return tf.transpose(pixels, [1, 0, 2])

    pixels = tf.ensure_shape(pixels, [None, None, None])
    turned = tf.cond(among(5, 6, 7, 8), swapped, lambda: pixels)
    turned = tf.cond(among(2, 3, 6, 7), lambda: tf.reverse(turned, [1]), lambda: turned)
    return tf.cond(among(3, 4, 7, 8), lambda: tf.reverse(turned, [0]), lambda: turned)


def _bmp(encoded: tf.Tensor) -> tf.Tensor:
    """RGB of a BMP with 8, 24 or 32 bits; TensorFlow does not look at its palette."""
    head = _bytes(encoded, 0, 54)
    is_known = tf.equal(head[30], _UNCOMPRESSED) | tf.equal(head[30], _BITFIELDS)
    pixels = tf.io.decode_image(tf.where(is_known, encoded, b""), expand_animations=False)

    def of_palette() -> tf.Tensor:
        colours = _bytes(encoded, 14 + _number(head[14:18]), 1024)
        colours = tf.reshape(colours[: tf.size(colours) // 4 * 4], [-1, 4])[:, 2::-1]
        return tf.cast(tf.gather(colours, tf.cast(pixels[..., 0], tf.int32)), tf.uint8)

    return tf.cond(tf.equal(head[28], 8), of_palette, lambda: pixels[..., :3])


def _fitted(
    pixels: tf.Tensor,
    shape: Sequence[int],
    fit: str,
    method: str = tf.image.ResizeMethod.BILINEAR,
) -> tf.Tensor:
    """Pixels in another size, of the same dtype."""
    height, width, _ = shape
    has = tf.shape(pixels)
    if fit == "crop":  # the sizes of keras.preprocessing.image.smart_resize
        rows = tf.clip_by_value(has[1] * height // width, 1, has[0])
        columns = tf.clip_by_value(has[0] * width // height, 1, has[1])
        top, left = (has[0] - rows) // 2, (has[1] - columns) // 2
        pixels = pixels[top : top + rows, left : left + columns]
    size: Any = (height, width)
    if fit == "pad":
        size = (
            tf.clip_by_value(has[0] * width // has[1], 1, height),
            tf.clip_by_value(has[1] * height // has[0], 1, width),
        )
    resized = tf.image.resize(pixels, size, method, antialias=True)
    if fit == "pad":
        top, left = (height - size[0]) // 2, (width - size[1]) // 2
        resized = tf.image.pad_to_bounding_box(resized, top, left, height, width)
    return tf.saturate_cast(tf.round(resized), pixels.dtype)
