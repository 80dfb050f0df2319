"""Random crops (He et al. 2015, "Deep residual learning", section 4.2)."""

from __future__ import annotations

from typing import Any

from stagecraft.trainer_module.data.augmentation import Augmentation


class Crop(Augmentation):
    """4 zeros around an image of 32, of which 32 are taken; an eighth of any other side."""

    name = "crop"
    description = "moves the image by up to an eighth of its sides; zeros fill the border"
    order = 10
    moves = True
    first_draw = 0

    def apply(self, images: Any, draws: Any) -> Any:
        """Draws 0 and 1 are the row and the column."""
        import tensorflow as tf

        height, width, channels = images.shape[1:]
        top, left = height // 8, width // 8
        # Pad knows no packets of 3 channels: as one dimension with the columns, it is faster.
        rows = tf.reshape(images, [-1, height, width * channels])
        padded = tf.pad(rows, [[0, 0], [top, top], [left * channels, left * channels]])
        pixels = tf.reshape(padded, [-1, channels])
        # The pixels of a row of a crop follow each other. A ragged gather copies them as one slice;
        # a gather of columns looks each of them up and takes three times as long.
        count = tf.shape(images, tf.int64)[0]
        row = tf.range(count * (height + 2 * top), delta=height + 2 * top)[:, tf.newaxis]
        row = row + tf.range(height, dtype=tf.int64) + tf.cast(draws(0, 2 * top + 1), tf.int64)
        begin = row * (width + 2 * left) + tf.cast(draws(1, 2 * left + 1), tf.int64)
        ends = tf.reshape(tf.stack([begin, begin + width], axis=-1), [-1])
        splits = tf.concat([[0], ends, [tf.shape(pixels, tf.int64)[0]]], axis=0)
        between_and_taken = tf.RaggedTensor.from_row_splits(pixels, splits, validate=False)
        taken = tf.gather(between_and_taken, 2 * tf.range(count * height) + 1)
        return tf.reshape(taken.flat_values, tf.shape(images))


CROP = Crop()
