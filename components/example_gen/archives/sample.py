"""A small generated data set for a first run without network: ten classes of drawn shapes.

The sample is not CIFAR-10, but has its image size and binary layout. Position, size, rotation,
colours, clutter and noise are random. A small CNN learns it in a minute, though not perfectly.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from stagecraft.components.example_gen.archives.archive import Block
from stagecraft.components.example_gen.archives.layouts import TEST, TRAIN
from stagecraft.components.example_gen.archives.records import BLOCK, Planes

Field = npt.NDArray[np.float32]  # most often ``[n, 32, 32]``: one value a pixel
Masks = npt.NDArray[np.uint8]  # ``[n, 32, 32]``: 1 where more than half of a pixel is the shape
SIDE = 32
DARK, BRIGHT, ANY = (0.0, 0.65), (0.35, 1.0), (0.0, 1.0)
ROTATION = 0.7
_SEED = 10


Shape = Callable[[Field, Field], Field]


def _cross(u: Field, v: Field) -> Field:
    long, short = np.maximum(np.abs(u), np.abs(v)), np.minimum(np.abs(u), np.abs(v))
    return np.maximum(long - 0.95, short - 0.28)


def _corner(u: Field, v: Field) -> Field:
    upright = np.maximum(np.abs(u + 0.55) - 0.27, np.abs(v) - 0.82)
    return np.minimum(upright, np.maximum(np.abs(u) - 0.82, np.abs(v - 0.55) - 0.27))


SHAPES: dict[str, Shape] = {
    "disc": lambda u, v: np.hypot(u, v) - 0.85,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.7) - 0.2,
    "half_disc": lambda u, v: np.maximum(np.hypot(u, v - 0.4) - 1, v - 0.4),
    "crescent": lambda u, v: np.maximum(np.hypot(u, v) - 0.95, 0.75 - np.hypot(u - 0.45, v)),
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.75,
    "frame": lambda u, v: np.abs(np.maximum(np.abs(u), np.abs(v)) - 0.6) - 0.2,
    "triangle": lambda u, v: np.maximum(np.abs(u) * 0.866 + v * 0.5, -v) - 0.5,
    "cross": _cross,
    "star": lambda u, v: np.hypot(u, v) - (0.62 + 0.33 * np.cos(5 * np.arctan2(v, u))),
    "corner": _corner,
}
"""Class names in the order of their labels, and the signed distance from each shape's edge,
negative inside, in coordinates where the shape fills about ``[-1, 1]``."""


def blocks(train: int, test: int) -> Iterator[Block]:
    """Yields the sample's images, always the same for the same numbers."""
    return (block for block, _ in drawings(train, test))


def drawings(train: int, test: int) -> Iterator[tuple[Block, Masks]]:
    """Yields the sample's images and the pixels of their shapes."""
    for part, count, seed in ((TRAIN, train, _SEED), (TEST, test, _SEED + 1)):
        for first in range(0, count, BLOCK):
            random = np.random.default_rng([seed, first])
            size = min(BLOCK, count - first)
            labels = random.permutation(np.arange(first, first + size) % len(SHAPES))
            planes, masks = _draw(labels, random)
            yield Block(part, 0, labels.astype(np.uint8), planes), masks


def write(folder: pathlib.Path, train: int, test: int) -> None:
    """Writes the sample as an unpacked ``cifar-10-binary`` archive."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta.txt").write_text("\n".join(SHAPES) + "\n")
    names = {TRAIN: "data_batch_1.bin", TEST: "test_batch.bin"}
    for name in names.values():
        (folder / name).write_bytes(b"")
    for part, _, labels, planes in blocks(train, test):
        with open(folder / names[part], "ab") as file:
            file.write(np.concatenate([labels[:, None], planes], axis=1).tobytes())


def _draw(labels: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[Planes, Masks]:
    """Returns an image for each label, as uint8 planes ``[n, 3072]``, and its shape's mask."""
    n = len(labels)
    picture = _gradient(_colours(n, random, DARK), _colours(n, random, DARK), random)
    for clutter in (SHAPES["disc"], SHAPES["square"]):
        places = _place(n, random, size=(1.5, 3.0), offset=14.0, rotation=np.pi)
        _paint(picture, _cover(clutter, places), _colours(n, random, ANY))
    places = _place(n, random, size=(6.0, 10.0), offset=5.0, rotation=ROTATION)
    cover = np.empty((n, SIDE, SIDE), np.float32)
    for label, distance in enumerate(SHAPES.values()):
        mine = np.flatnonzero(labels == label)
        cover[mine] = _cover(distance, places[:, mine])
    _paint(picture, cover, _colours(n, random, BRIGHT))
    places = _place(n, random, size=(1.5, 3.5), offset=10.0, rotation=0.0)
    front = _cover(SHAPES["disc"], places)
    _paint(picture, front, _colours(n, random, ANY))
    noise = random.standard_normal(picture.shape, np.float32)
    picture += noise * random.uniform(0.02, 0.2, (n, 1, 1, 1)).astype(np.float32)
    planes = (np.clip(picture, 0, 1) * 255).astype(np.uint8).reshape(n, -1)
    return planes, (cover * (1 - front) > 0.5).astype(np.uint8)


def _place(
    n: int,
    random: np.random.Generator,
    *,
    size: tuple[float, float],
    offset: float,
    rotation: float,
) -> Field:
    """Coordinates u and v of each pixel in shapes of random place, and sizes: ``[3, n, 32, 32]``.

    ``size``: range of half the width, and ``offset``: largest distance from the centre along an
    axis, in pixels; ``rotation``: largest one in both directions, in radians.
    """
    axis = np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2
    dx, dy = random.uniform(-offset, offset, (2, n, 1, 1)).astype(np.float32)
    angle = random.uniform(-rotation, rotation, (n, 1, 1)).astype(np.float32)
    half = random.uniform(*size, (n, 1, 1)).astype(np.float32)
    x, y = (axis - dx) / half, (axis[:, None] - dy) / half
    u, v = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    return np.stack([u, v, np.broadcast_to(half, u.shape)])


def _cover(distance: Shape, places: Field) -> Field:
    """How much of each pixel the shapes cover, 0 to 1, ``[n, 32, 32]``."""
    u, v, half = places
    return np.clip(0.5 - distance(u, v) * half, 0, 1)


def _paint(picture: Field, cover: Field, colour: Field) -> None:
    """Paints one colour ``[n, 3]`` over each image ``[n, 3, 32, 32]``, in place."""
    picture += cover[:, None] * (colour[:, :, None, None] - picture)


def _colours(n: int, random: np.random.Generator, between: tuple[float, float]) -> Field:
    return random.uniform(*between, (n, 3)).astype(np.float32)


def _gradient(one: Field, other: Field, random: np.random.Generator) -> Field:
    """Images ``[n, 3, 32, 32]`` with a gradient between two colours, in random directions."""
    u = _place(len(one), random, size=(SIDE, SIDE), offset=0.0, rotation=np.pi)[0][:, None]
    return one[:, :, None, None] * (0.5 - u) + other[:, :, None, None] * (0.5 + u)
