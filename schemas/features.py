"""The features of an example: the one place that knows their names, shapes and dtypes.

Also the check that a schema, a Transform graph or a file has the features that a reader needs.

Class names live in the TFDV schema itself (a schema-level ``string_domain``
named ``label_names``), so that a user's own schema brings its own classes along.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from stagecraft.common.errors import UserError

IMAGE = "image"
"""Raw: bytes, ``height * width * channels`` uint8 values in HWC order, or a JPEG, PNG, BMP or GIF
(the schema has an ``image_domain``). Transformed: float32 ``[height, width, channels]``, normalised
per channel."""

LABEL = "label"
"""int64 scalar, ``0 <= label < num_classes``."""

ID = "id"
"""int64 scalar: the example's position in the data set's own order, train before
test; unique and stable. Augmentation and held-out splits are keyed by it."""

FILE_NAME = "file_name"
"""Raw: bytes, the file of a picture in UTF-8, such as ``cat/1.png``; may be missing. Errors and the
report name pictures by it."""

TEXT = "text"
"""Raw: bytes, a window of a text in UTF-8."""

SEPARATORS = {"characters": "", "words": " "}
"""Unit of a text that is a token -> what stands between two of them."""

TOKENS = "tokens"
"""Transformed: int64 ``[length]``, the ids of a window's tokens."""

MASK = "mask"
"""Raw: bytes, ``height * width`` uint8 values, the class of each pixel, or a grey PNG of them.
Transformed: int64 ``[height, width]``."""

ALL = (IMAGE, LABEL, ID)

IMAGE_SHAPE = (32, 32, 3)
"""``[height, width, channels]`` of CIFAR-10 and CIFAR-100, and of a schema that names no shape."""

TRAIN, VAL, EVAL = "train", "val", "eval"
"""Splits. ``val`` is held out of the data set's training part and chooses the best
checkpoint; ``eval`` is the data set's own test part; no training uses it."""


class DataSet(NamedTuple):
    """A data set in the layout of the CIFAR archives."""

    name: str
    label_names: tuple[str, ...]
    schema_file: str
    """Path of the TFDV schema (text proto) that describes it."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.label_names)


def schema_file(name: str) -> str:
    """Path of a schema that this package has."""
    return str(pathlib.Path(__file__).resolve().parent / f"{name}.pbtxt")


def _data_set(name: str, label_names: str) -> DataSet:
    return DataSet(name, tuple(label_names.split()), schema_file(name))


_PUBLISHED = (
    _data_set("cifar10", "airplane automobile bird cat deer dog frog horse ship truck"),
    _data_set(
        "cifar100",
        "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus "
        "butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach "
        "couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster "
        "house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree "
        "motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear "
        "pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket "
        "rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
        "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip "
        "turtle wardrobe whale willow_tree wolf woman worm",
    ),
    _data_set(
        "cifar100_coarse",
        "aquatic_mammals fish flowers food_containers fruit_and_vegetables "
        "household_electrical_devices household_furniture insects large_carnivores "
        "large_man-made_outdoor_things large_natural_outdoor_scenes "
        "large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles "
        "small_mammals trees vehicles_1 vehicles_2",
    ),
)

DATASETS: Mapping[str, DataSet] = MappingProxyType({each.name: each for each in _PUBLISHED})

SAMPLE = _data_set("sample", "disc ring half_disc crescent square frame triangle cross star corner")
"""The generated sample, which stands in for CIFAR-10 where no archive is given."""


class MissingFeatureError(UserError):
    """A schema, a transform graph or a file lacks features."""

    def __init__(self, where: str, missing: Sequence[str], present: Sequence[str], advice: str):
        names = " and ".join(map(repr, missing))
        plural = "s" if len(missing) > 1 else ""
        known = f"only {', '.join(present)}" if present else "no features"
        super().__init__(
            f"{where}: no feature{plural} {names} (it has {known}); {advice}",
            file=where,
            record=", ".join(missing),
            suggestion=advice,
        )
        self.missing = tuple(missing)
        self.present = tuple(present)


def require(where: str, present: Iterable[str], required: Sequence[str], advice: str) -> None:
    """Refuses features of which a required one is missing."""
    names = sorted(present)
    if missing := [name for name in required if name not in names]:
        raise MissingFeatureError(where, missing, names, advice)
