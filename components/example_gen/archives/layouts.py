"""The four official layouts of the CIFAR archives: which files, which labels.

Source: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stagecraft.schemas.features import DATASETS

PLANES = 3 * 32 * 32
"""Bytes of a picture as the archives hold it: its red, green and blue planes, row by row."""

TRAIN, TEST = "train", "test"
"""The data set's own parts."""


class Label(NamedTuple):
    """One of the labels that a record carries."""

    dataset: str
    """The key of ``features.DATASETS`` under which this label is learned."""

    key: str
    """Its name in the pickled layout. In the binary one, labels are bytes in this order."""

    @property
    def num_classes(self) -> int:
        """Labels are from 0 to this, exclusive."""
        return DATASETS[self.dataset].num_classes


class Layout(NamedTuple):
    """One way in which a data set is packed."""

    name: str
    family: str
    """The data set's own name."""

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
        """What can be learned from it: keys of ``features.DATASETS``."""
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
    """What a file's name says about it."""

    layout: Layout
    part: str
    """``train`` or ``test``."""

    batch: int
    """Its position among the files of its part, from 0."""


def place(base_name: str) -> Place | None:
    """The place of a file in a data set, or None if its name says nothing of the kind."""
    for layout in LAYOUTS:
        if re.fullmatch(layout.test, base_name):
            return Place(layout, TEST, 0)
        match = re.fullmatch(layout.train, base_name)
        if match:
            return Place(layout, TRAIN, int(match[1]) - 1 if match.groups() else 0)
    return None
