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
"""Parts of a data set."""


class Label(NamedTuple):
    """One of the labels of a record."""

    dataset: str
    """Key of ``features.DATASETS`` for a training on this label."""
    key: str
    """Its name in the pickled layout. In the binary one, labels are bytes in this order."""

    @property
    def num_classes(self) -> int:
        """Labels are from 0 to this, exclusive."""
        return DATASETS[self.dataset].num_classes


class Layout(NamedTuple):
    """An official layout of a data set."""

    name: str
    family: str
    """Name of the data set."""
    pickled: bool
    folder: str
    """What the official archive unpacks to."""
    train: str
    """Pattern of a training batch's base name; group 1, if any, is its number from 1."""
    test: str
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
_NUMBER = "([1-9][0-9]*)"

LAYOUTS = (
    Layout(
        name="cifar-10-binary",
        family="CIFAR-10",
        pickled=False,
        folder="cifar-10-batches-bin",
        train=rf"data_batch_{_NUMBER}\.bin",
        test=r"test_batch\.bin",
        labels=_TEN,
    ),
    Layout(
        name="cifar-10-python",
        family="CIFAR-10",
        pickled=True,
        folder="cifar-10-batches-py",
        train=rf"data_batch_{_NUMBER}",
        test="test_batch",
        labels=_TEN,
    ),
    Layout(
        name="cifar-100-binary",
        family="CIFAR-100",
        pickled=False,
        folder="cifar-100-binary",
        train=r"train\.bin",
        test=r"test\.bin",
        labels=_HUNDRED,
    ),
    Layout(
        name="cifar-100-python",
        family="CIFAR-100",
        pickled=True,
        folder="cifar-100-python",
        train="train",
        test="test",
        labels=_HUNDRED,
    ),
)


class Place(NamedTuple):
    """The place of a file in a data set, by its name."""

    layout: Layout
    part: str
    """``train`` or ``test``."""
    batch: int
    """Its position among the files of its part, from 0."""


def place(base_name: str) -> Place | None:
    """The place of a file in a data set; None for other names."""
    for layout in LAYOUTS:
        if re.fullmatch(layout.test, base_name):
            return Place(layout, TEST, 0)
        match = re.fullmatch(layout.train, base_name)
        if match:
            return Place(layout, TRAIN, int(match[1]) - 1 if match.groups() else 0)
    return None
