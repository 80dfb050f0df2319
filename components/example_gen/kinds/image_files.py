"""Reads image files for examples, and says what is wrong with one.

Imports TensorFlow only to decode.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from PIL import Image

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen import content, source, splits
from stagecraft.components.example_gen.archives import files
from stagecraft.schemas import features

FORMATS = ("PNG", "JPEG", "BMP", "GIF")
ORIENTATION = 0x0112
"""EXIF's tag."""

_FOREIGN_FORMATS = ((0, b"RIFF", "a WebP"), (0, b"II*\0", "a TIFF"), (0, b"MM\0*", "a TIFF"),
                    (4, b"ftyp", "a HEIF or AVIF"), (4, b"jP  ", "a JPEG 2000"))  # fmt: skip
"""Place and bytes that begin a file of a format that TensorFlow cannot read when serving."""


class RefusedError(Exception):
    """A file that is no picture, or that the model could not read; the message is the problem."""


@contextmanager
def opened(data: IO[bytes], formats: tuple[str, ...]) -> Iterator[Image.Image]:
    """An image without its pixels."""
    try:
        with Image.open(data, formats=formats) as image:
            yield image
    except Image.DecompressionBombError:
        raise RefusedError("has more pixels than Pillow opens; make it smaller") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        problem = f"is damaged, or not one of {', '.join(formats)}; replace or remove it"
        raise RefusedError(problem) from error


def read(path: str) -> bytes:
    """The bytes of an image file."""
    try:
        with files.open_binary(path) as stream:
            data = stream.read()
    except OSError as error:
        raise RefusedError(f"cannot be read: {error.strerror or error}") from error
    if not data:
        raise RefusedError("is empty; replace or remove it")
    for place, begin, kind in _FOREIGN_FORMATS:
        if data.startswith(begin, place):
            use = "save it as PNG or JPEG"
            raise RefusedError(f"is {kind}, which TensorFlow does not read; {use}")
    return data


def checked(path: str) -> tuple[bytes, tuple[int, int]]:
    """An image file, with height and width of the picture. Decodes it as Transform does."""
    import tensorflow as tf

    from stagecraft.trainer_module import decoding

    data = read(path)
    with opened(io.BytesIO(data), FORMATS) as image:
        if image.format == "PNG":
            if b"eXIf" not in data:
                image.verify()  # its checksums; a JPEG has none
            elif image.getexif().get(ORIENTATION, 1) != 1:
                problem = "is a PNG with an EXIF orientation, which TensorFlow does not see"
                raise RefusedError(f"{problem}; save it upright, or as a JPEG")
    try:
        height, width = decoding.size_fn(3)(data).numpy().tolist()
    except tf.errors.OpError:
        problem = "is damaged, or in a variant that TensorFlow does not read"
        raise RefusedError(f"{problem}; save it again as PNG or JPEG, or remove it") from None
    return data, (height, width)


class Source(content.Source):
    """A folder of image files."""

    @abc.abstractmethod
    def names(self) -> Iterable[str]:
        """The files whose content matters."""

    def fingerprint(self) -> str:
        """SHA-256 of names and bytes."""
        with source.readable(self.path):
            return source.sha256_of(self.path, self.names())


@dataclasses.dataclass(frozen=True)
class Files(content.Content):
    """Image files, each an example; ids are positions in the sorted names."""

    path: str
    names: tuple[str, ...]

    def split_ids(self, val_fraction: float) -> dict[str, splits.Ids]:
        """By a hash of the name, so that a file stays in its split when others come.

        ``val`` and ``eval`` have about ``val_fraction`` of the files each.
        """
        digests = (hashlib.sha256(name.encode()).digest()[:8] for name in self.names)
        places = np.array([int.from_bytes(each, "big") / 2**64 for each in digests])
        parts = np.digitize(places, [val_fraction, 2 * val_fraction])
        order = {features.VAL: 0, features.EVAL: 1, features.TRAIN: 2}
        ids = {split: np.flatnonzero(parts == order[split]) for split in splits.SPLITS}
        for split, of_split in ids.items():
            if not len(of_split):
                raise SettingError(
                    "val_fraction",
                    val_fraction,
                    f"of {len(self.names):,} image files leaves none for {split}",
                    "more files, or another fraction",
                )
        return ids

    def examples(self, ids: splits.Ids) -> Iterator[bytes | content.Refused]:
        """Reads each file."""
        for index in ids.tolist():
            yield self._example(index)

    @abc.abstractmethod
    def _example(self, index: int) -> bytes | content.Refused: ...
