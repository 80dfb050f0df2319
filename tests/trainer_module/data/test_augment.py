import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from stagecraft.trainer_module.data import augment as module
from stagecraft.trainer_module.settings import TrainSettings

AUGMENTATIONS = ("crop", "flip", "cutout")


def _noise(count: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, side, side, 3)).astype(np.float32)


def _augment(images, ids=None, seed=3, epoch=0, names=AUGMENTATIONS) -> np.ndarray:
    ids = np.arange(len(images)) if ids is None else ids
    epochs = np.broadcast_to(np.int64(epoch), len(images))
    graph = tf.function(
        lambda x, i, e: module.augment(x, i, seed=seed, epoch=e, augmentations=names)
    )
    result = graph(tf.constant(images), tf.constant(ids, tf.int64), tf.constant(epochs))
    assert result.shape == images.shape
    return result.numpy()


def _views(image: np.ndarray) -> dict[bytes, tuple[int, int, bool]]:
    """Every crop of the picture with its border of zeros, and its mirror image."""
    side = image.shape[0]
    margin = side // 8
    padded = np.pad(image, [(margin, margin), (margin, margin), (0, 0)])
    views = {}
    for top in range(2 * margin + 1):
        for left in range(2 * margin + 1):
            crop = padded[top : top + side, left : left + side]
            views[crop.tobytes()] = (top, left, False)
            views[crop[:, ::-1].tobytes()] = (top, left, True)
    return views


def _cases(images: np.ndarray, results: np.ndarray) -> list[tuple[int, int, bool]]:
    pairs = zip(images, results, strict=True)
    return [_views(image)[result.tobytes()] for image, result in pairs]


def test_nothing_asked_for_nothing_done():
    images = _noise(5)
    np.testing.assert_array_equal(_augment(images, names=()), images)


def test_crops_and_flips_are_views_and_all_equally_likely():
    images = _noise(1800)
    cases = _cases(images, _augment(images, names=("crop", "flip")))
    counts = np.unique(np.array(cases), axis=0, return_counts=True)[1]
    assert len(counts) == 3 * 3 * 2
    # Chi-squared with 17 degrees of freedom: 40.8 is passed once in a thousand seeds.
    assert ((counts - 100) ** 2 / 100).sum() < 40.8


def test_pictures_of_32_move_by_up_to_4():
    images = _noise(150, side=32)
    cases = _cases(images, _augment(images, names=("crop",)))
    rows, columns, flips = zip(*cases, strict=True)
    assert set(rows) == set(columns) == set(range(9))
    assert not any(flips)


def test_a_picture_that_is_not_square():
    images = np.random.default_rng(2).normal(size=(50, 16, 32, 1)).astype(np.float32)
    results = _augment(images)
    assert results.shape == images.shape
    assert set(np.unique(results)) <= set(np.unique(images)) | {0}


@pytest.mark.parametrize("shape", [(60, 8, 24, 3), (60, 17, 9, 1), (60, 5, 7, 4), (0, 8, 8, 3)])
def test_crops_and_flips_are_those_of_their_draws_to_the_bit(shape):
    """As NumPy's slices of each image, one by one; also for values that no sum preserves."""
    images = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    images[::3, 0], images[1::3, 1], images[2::3, 2] = np.nan, -0.0, -np.inf
    ids, epochs = np.arange(shape[0]) * 10**9, np.arange(shape[0]) % 5
    draws = module.Draws(3, tf.constant(epochs), tf.constant(ids), 0)
    top, left = shape[1] // 8, shape[2] // 8
    drawn = [
        draws(n, bound).numpy()[:, 0] for n, bound in enumerate((2 * top + 1, 2 * left + 1, 2))
    ]
    padded = np.pad(images, [(0, 0), (top, top), (left, left), (0, 0)])
    expected = [
        image[row : row + shape[1], column : column + shape[2]][:, :: -1 if flip else 1]
        for image, row, column, flip in zip(padded, *drawn, strict=True)
    ]
    results = _augment(images, ids, epoch=epochs, names=("crop", "flip"))
    assert results.tobytes() == b"".join(image.tobytes() for image in expected)


def test_one_augmentation_does_not_change_the_others():
    images = _noise(50)
    both = _cases(images, _augment(images, names=("crop", "flip")))
    crops = _cases(images, _augment(images, names=("crop",)))
    flips = _cases(images, _augment(images, names=("flip",)))
    assert [case[:2] for case in both] == [case[:2] for case in crops]
    assert [case[2] for case in both] == [case[2] for case in flips]


def test_the_same_example_anywhere_is_augmented_the_same():
    images = _noise(60, side=32)
    ids = np.random.default_rng(0).permutation(10**6)[:60] * 10**9
    epochs = np.arange(60) % 4
    whole = _augment(images, ids, epoch=epochs)
    chosen = np.array([41, 3, 59, 17])
    part = _augment(images[chosen], ids[chosen], epoch=epochs[chosen])
    np.testing.assert_array_equal(part, whole[chosen])


@pytest.mark.parametrize("change", [{"seed": 4}, {"epoch": 1}, {"ids": np.arange(1, 201)}])
def test_seed_epoch_and_id_each_make_a_difference(change):
    image = np.repeat(_noise(1), 200, axis=0)
    before = np.array(_cases(image, _augment(image, names=("crop", "flip"))))
    after = np.array(_cases(image, _augment(image, names=("crop", "flip"), **change)))
    # Independent draws agree in 1 of 18 cases: 11.1 +- 3.2 of 200; five deviations at most.
    assert (before == after).all(axis=1).sum() < 28


def test_cutout_is_one_hole_of_a_quarter_of_the_side():
    images = _noise(2000, side=32)
    results = _augment(images, names=("cutout",))
    holes = (results == 0).all(axis=-1)
    np.testing.assert_array_equal(results[~holes], images[~holes])
    heights, widths = holes.any(axis=2).sum(axis=1), holes.any(axis=1).sum(axis=1)
    np.testing.assert_array_equal(holes.sum(axis=(1, 2)), heights * widths)
    assert set(heights) == set(widths) == {4, 5, 6, 7, 8}
    # With a uniform centre: 240 / 32 rows on average, of a deviation of 1.1 each.
    assert heights.mean() == pytest.approx(7.5, abs=4 * 1.1 / 2000**0.5)
    assert widths.mean() == pytest.approx(7.5, abs=4 * 1.1 / 2000**0.5)


def _moved(image: np.ndarray) -> dict[bytes, tuple[int, int]]:
    """Every translation of the picture by a sixteenth of its side, by NumPy's reflection."""
    side = image.shape[0]
    margin = side // 16
    padded = np.pad(image, [(margin, margin), (margin, margin), (0, 0)], mode="reflect")
    return {
        padded[top : top + side, left : left + side].tobytes(): (top, left)
        for top in range(2 * margin + 1)
        for left in range(2 * margin + 1)
    }


def test_translations_by_up_to_2_pixels_are_reflected_and_all_equally_likely():
    images = _noise(2500, side=32)
    results = _augment(images, names=("translate",))
    pairs = zip(images, results, strict=True)
    cases = [_moved(image)[result.tobytes()] for image, result in pairs]
    counts = np.unique(np.array(cases), axis=0, return_counts=True)[1]
    assert len(counts) == 5 * 5
    # Chi-squared with 24 degrees of freedom: 51.2 is passed once in a thousand seeds.
    assert ((counts - 100) ** 2 / 100).sum() < 51.2


@pytest.mark.parametrize("side", [1, 8, 15])
def test_small_pictures_are_not_translated(side):
    images = _noise(20, side=side)
    np.testing.assert_array_equal(_augment(images, names=("translate",)), images)


def _flipped(images: np.ndarray, epoch: int, names: tuple[str, ...], **more: int) -> np.ndarray:
    results = _augment(images, epoch=epoch, names=names, **more)
    same = (results == images).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(results[~same], images[~same][:, :, ::-1])
    return ~same


def test_an_alternating_flip_shows_both_views_in_two_epochs():
    images = _noise(2000)
    epochs = [_flipped(images, epoch, ("alternating_flip",)) for epoch in range(5)]
    for epoch, flipped in enumerate(epochs):
        np.testing.assert_array_equal(flipped, epochs[0] ^ bool(epoch % 2))
    # Half of the images begin with the mirror image: a deviation of 22, five at most.
    assert abs(epochs[0].sum() - 1000) < 112
    other = _flipped(images, 0, ("alternating_flip",), seed=4)
    assert 800 < (other != epochs[0]).sum() < 1200
    random = [_flipped(images, epoch, ("flip",)) for epoch in range(2)]
    assert 800 < (random[0] == random[1]).sum() < 1200


def test_an_alternating_flip_at_the_seam_of_two_epochs():
    """A batch holds the end of an epoch and the beginning of the next: each by its own."""
    images, epochs = _noise(60), np.arange(60) % 3
    whole = _augment(images, epoch=epochs, names=("alternating_flip",))
    for epoch in range(3):
        alone = _augment(images, epoch=epoch, names=("alternating_flip",))
        np.testing.assert_array_equal(whole[epochs == epoch], alone[epochs == epoch])


@pytest.mark.parametrize("names", ["flip,alternating_flip", ["alternating_flip", "flip", "crop"]])
def test_two_flips_exclude_each_other(names):
    error = refusal(TrainSettings, {"augment": names})
    assert (error.setting, error.value) == ("train.augment", "alternating_flip,flip")
    assert error.suggestion == "alternating_flip"


def test_the_draws_stay_what_they_were():
    """Five draws of three examples, written down: a resumed training goes on with the same."""
    draws = module.Draws(3, tf.range(3, dtype=tf.int64), tf.constant([5, 6, 10**12], tf.int64), 0)
    values = [draws(draw, 1000).numpy().ravel().tolist() for draw in range(5)]
    assert values == [
        [170, 910, 381],
        [169, 420, 583],
        [216, 546, 703],
        [69, 865, 299],
        [483, 836, 125],
    ]
