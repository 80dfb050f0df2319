"""The four official layouts of the CIFAR archives: which files, which labels.

Source: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stagecraft.schemas.features import DATASETS

PLANES = 3 * 32 * 32
"""Bytes of an image in the archives: its red, green and blue planes, row by row."""

TRAIN, TEST = "train", "test"


class Label(NamedTuple):
    """One of the labels of a record."""

    dataset: str  # key of ``features.DATASETS`` for a training on this label
    key: str  # its name in the pickled layout. In the binary one, labels are bytes in this order.

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are 0 to ``num_classes - 1``."""
        return DATASETS[self.dataset].num_classes


class Layout(NamedTuple):
    """An official layout of a data set."""

    name: str
    family: str
    pickled: bool
    folder: str
    """The folder that the official archive unpacks to."""
    files: tuple[str, str]
    """Patterns of base names, of train and test, without the suffix ``.bin`` of the binary layouts.
    Group 1, if any, is a batch's number from 1."""
    labels: tuple[Label, ...]

    @property
    def record_bytes(self) -> int:
        """Bytes of a record in the binary layout."""
        return len(self.labels) + PLANES

    @property
    def datasets(self) -> tuple[str, ...]:
        """Keys of ``features.DATASETS`` that the layout contains."""
        return tuple(label.dataset for label in self.labels)


_TEN = (Label("cifar10", "labels"),)
_HUNDRED = (Label("cifar100_coarse", "coarse_labels"), Label("cifar100", "fine_labels"))
_BATCHES = ("data_batch_([1-9][0-9]*)", "test_batch")
_PARTS = ("train", "test")

LAYOUTS = (
    Layout("cifar-10-binary", "CIFAR-10", False, "cifar-10-batches-bin", _BATCHES, _TEN),
    Layout("cifar-10-python", "CIFAR-10", True, "cifar-10-batches-py", _BATCHES, _TEN),
    Layout("cifar-100-binary", "CIFAR-100", False, "cifar-100-binary", _PARTS, _HUNDRED),
    Layout("cifar-100-python", "CIFAR-100", True, "cifar-100-python", _PARTS, _HUNDRED),
)


class Place(NamedTuple):
    """The place of a file in a data set, by its name."""

    layout: Layout
    part: str
    batch: int  # its position among the files of its part, from 0


def place(base_name: str) -> Place | None:
    """The place of a file in a data set; None for other names."""
    for layout in LAYOUTS:
        stem = base_name if layout.pickled else base_name.removesuffix(".bin")
        train, test = layout.files
        if layout.pickled or stem != base_name:
            if re.fullmatch(test, stem):
                return Place(layout, TEST, 0)
            if match := re.fullmatch(train, stem):
                return Place(layout, TRAIN, int(match[1]) - 1 if match.groups() else 0)
    return None
