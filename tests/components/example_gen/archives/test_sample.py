"""The generated sample: the same every time, balanced, in CIFAR-10's layout."""

import numpy as np

from stagecraft.components.example_gen.archives import archive, sample
from stagecraft.schemas import features


def test_has_the_pictures_asked_for():
    blocks = list(sample.blocks(1_500, 40))
    for part, count in (("train", 1_500), ("test", 40)):
        labels = np.concatenate([block.labels for block in blocks if block.part == part])
        assert np.bincount(labels).tolist() == [count // 10] * 10
    assert all(block.planes.shape == (len(block.labels), 3072) for block in blocks)
    assert all(block.planes.dtype == block.labels.dtype == np.uint8 for block in blocks)


def test_is_the_same_every_time_and_no_two_pictures_are():
    first, second = (np.concatenate([b.planes for b in sample.blocks(1_100, 20)]) for _ in "ab")
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == len(first)


def test_classes_differ_beyond_chance():
    """Even the nearest class mean, which knows nothing of shapes, beats one in ten."""
    blocks = list(sample.blocks(2_000, 500))

    def part(name: str) -> tuple[np.ndarray, np.ndarray]:
        mine = [block for block in blocks if block.part == name]
        planes = np.concatenate([block.planes for block in mine]).astype(np.float64)
        planes -= planes.mean(axis=1, keepdims=True)
        return planes / planes.std(axis=1, keepdims=True), np.concatenate([b.labels for b in mine])

    planes, labels = part("train")
    means = np.stack([planes[labels == label].mean(axis=0) for label in range(10)])
    planes, labels = part("test")
    guesses = np.argmax(planes @ means.T - (means**2).sum(axis=1) / 2, axis=1)
    chance = 0.1 + 5 * (0.1 * 0.9 / 500) ** 0.5  # five standard deviations
    assert (guesses == labels).mean() > chance


def test_written_it_is_an_archive(tmp_path):
    sample.write(tmp_path / "sample", 30, 10)
    read = list(archive.read(str(tmp_path / "sample"), "cifar10"))
    made = list(sample.blocks(30, 10))
    for one, other in zip(read, made, strict=True):
        assert one.part == other.part
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.planes, other.planes)


def test_its_classes_are_those_of_the_schema():
    assert features.SAMPLE.label_names == tuple(sample.SHAPES)
