import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from stagecraft.common.errors import UserError
from stagecraft.schemas.features import MissingFeatureError
from stagecraft.trainer_module.data import input_data
from stagecraft.trainer_module.settings import TrainSettings

MODES = ["memory", "stream"]


@pytest.fixture(scope="module")
def transformed(raw, transform) -> np.ndarray:
    """All images, transformed: float32 ``[n, 32, 32, 3]``."""
    layer = transform.transform_features_layer()
    return layer({"image": tf.constant([image.tobytes() for image in raw.images])})["image"].numpy()


@pytest.fixture
def which(transformed):
    """From transformed images to the positions that they have in ``raw``."""
    positions = {image.tobytes(): index for index, image in enumerate(transformed)}
    return lambda images: np.array([positions[image.tobytes()] for image in np.asarray(images)])


@pytest.fixture
def train(raw, transform):
    def make(files=None, num_examples=300, start_step=0, **settings):
        settings = {"batch_size": 128, "augment": "none", "shuffle_buffer": 64, **settings}
        return input_data.train_dataset(
            files or [raw.pattern], transform, TrainSettings(**settings), num_examples, start_step
        )

    return make


class Graph:
    """As much of a TFTransformOutput as tells its features."""

    def __init__(self, raw: str, transformed: str):
        self.transform_savedmodel_dir = "/graphs/7/transform_fn"
        self._raw, self._transformed = raw.split(), transformed.split()

    def raw_feature_spec(self) -> dict[str, None]:
        return dict.fromkeys(self._raw)

    def transformed_feature_spec(self) -> dict[str, None]:
        return dict.fromkeys(self._transformed)


@pytest.mark.parametrize(
    ("raw_names", "names", "missing", "what"),
    [
        ("image label id", "label id", ("image",), "the output of preprocessing_fn"),
        ("image label id", "image", ("label", "id"), "the output of preprocessing_fn"),
        ("picture label id", "image label id", ("image",), "the input of Transform"),
    ],
)
def test_a_graph_without_a_feature_is_refused_by_name(raw, raw_names, names, missing, what):
    graph = Graph(raw_names, names)
    with pytest.raises(MissingFeatureError) as raised:
        input_data.eval_dataset([raw.pattern], graph, 8)
    assert raised.value.missing == missing
    with pytest.raises(MissingFeatureError, match=f"^/graphs/7: {what}"):
        input_data.train_dataset([raw.pattern], graph, TrainSettings(), 300)


def _order(dataset, which, steps: int) -> np.ndarray:
    return np.concatenate([which(batch.inputs) for batch in dataset.take(steps)])


def test_examples_are_counted(raw, tmp_path):
    assert input_data.count_examples([raw.pattern]) == 300
    (tmp_path / "empty").touch()
    assert input_data.count_examples([str(tmp_path / "*")]) == 0


@pytest.mark.parametrize("shuffle", MODES)
def test_every_epoch_has_every_example_once(train, raw, which, shuffle):
    batches = list(train(shuffle=shuffle).take(8))
    for batch in batches:
        assert batch.inputs.shape == (128, 32, 32, 3)
        assert batch.inputs.dtype == tf.float32
        assert batch.targets.dtype == tf.int64
        np.testing.assert_array_equal(batch.weights, np.ones(128, np.float32))
        np.testing.assert_array_equal(batch.targets, raw.labels[which(batch.inputs)])
    order = np.concatenate([which(batch.inputs) for batch in batches])
    epochs = [order[:300], order[300:600], order[600:900]]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(300))
    for before, after in ((0, 1), (1, 2), (0, 2)):
        # One agreement is expected of permutations of everything, 300 / 64 of those of blocks.
        assert (epochs[before] == epochs[after]).sum() < 20


def test_permutations_in_memory_are_independent(train, which):
    order = _order(train(shuffle="memory"), which, 12)
    epochs = [order[300 * epoch : 300 * (epoch + 1)] for epoch in range(5)]
    pairs = [(epochs[i], epochs[j]) for i in range(5) for j in range(i)]
    neighbours = [(epoch[:-1], epoch[1:]) for epoch in epochs]
    for one, other in pairs + neighbours:
        # The correlation of independent ones is 0 with a deviation of 299 ** -0.5.
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 * 299**-0.5


@pytest.mark.parametrize("shuffle", MODES)
def test_a_batch_may_be_larger_than_the_data(train, which, shuffle):
    order = _order(train(shuffle=shuffle, batch_size=700), which, 3)
    for epoch in range(7):
        part = order[300 * epoch : 300 * (epoch + 1)]
        np.testing.assert_array_equal(np.sort(part), np.arange(300))


@pytest.mark.parametrize("shuffle", MODES)
@pytest.mark.parametrize("start_step", [1, 7])  # 7: across the end of an epoch
def test_a_resumed_stream_goes_on_as_if_it_had_not_stopped(train, shuffle, start_step):
    settings = {"shuffle": shuffle, "augment": "crop,flip,cutout"}
    whole = list(train(**settings).take(start_step + 3))[start_step:]
    resumed = train(start_step=start_step, **settings).take(3)
    for expected, batch in zip(whole, resumed, strict=True):
        for one, other in zip(expected, batch, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shuffle", MODES)
def test_the_order_is_a_function_of_the_seed_alone(train, which, shuffle):
    tf.random.set_seed(1)
    first = _order(train(shuffle=shuffle), which, 4)
    tf.random.set_seed(2)
    np.testing.assert_array_equal(_order(train(shuffle=shuffle), which, 4), first)
    assert (_order(train(shuffle=shuffle, seed=1), which, 4) != first).mean() > 0.9


def test_a_stream_mixes_files(train, which):
    first_batch = _order(train(shuffle="stream", batch_size=30), which, 1)
    assert len(set(first_batch % 6)) == 6  # Example i lies in file i % 6.


def test_auto_streams_what_is_larger_than_its_limit(train, raw, which):
    small, large = {"num_examples": 300}, {"num_examples": 600, "files": [raw.pattern] * 2}
    for data, expected, other in ((small, "memory", "stream"), (large, "stream", "memory")):
        auto = _order(train(shuffle="auto", memory_limit_mb=1, **data), which, 2)
        np.testing.assert_array_equal(auto, _order(train(shuffle=expected, **data), which, 2))
        assert (auto != _order(train(shuffle=other, **data), which, 2)).any()


def test_an_example_is_augmented_by_its_id_and_epoch(train, raw, transformed):
    from stagecraft.trainer_module.data.augment import augment

    plain = list(train().take(5))
    positions = {image.tobytes(): index for index, image in enumerate(transformed)}
    for step, batch in enumerate(train(augment="crop,flip").take(5)):
        images = plain[step].inputs
        indices = [positions[image.tobytes()] for image in images.numpy()]
        epochs = (np.arange(128) + 128 * step) // 300
        expected = augment(
            images,
            tf.constant(raw.ids[indices]),
            seed=0,
            epoch=tf.constant(epochs),
            augmentations=("crop", "flip"),
        )
        np.testing.assert_array_equal(batch.inputs, expected)


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_each_worker_mixes_with_partners_of_the_global_batch(name, train, raw, transform, which):
    given = {"augment": f"flip,{name}", "mix_alpha": 0.5, "batch_size": 30}
    (whole,) = train(**given).take(1)
    settings = TrainSettings(**given)
    (plain,) = train(augment="flip", batch_size=30).take(1)
    np.testing.assert_array_equal(whole.targets.targets, plain.targets)
    np.testing.assert_array_equal(whole.targets.partners, plain.targets[::-1])
    share = whole.targets.share[:, None, None, None]
    if name == "mixup":
        expected = share * plain.inputs + (1 - share) * plain.inputs[::-1]
        np.testing.assert_allclose(whole.inputs, expected, rtol=1e-6, atol=1e-6)
    else:
        is_own = tf.reduce_all(whole.inputs == plain.inputs, axis=-1)
        is_partner = tf.reduce_all(whole.inputs == plain.inputs[::-1], axis=-1)
        assert (is_own | is_partner).numpy().all()
        found = tf.reduce_mean(tf.cast(is_own, tf.float32), axis=[1, 2])
        np.testing.assert_allclose(found, whole.targets.share, atol=1e-3)
    for worker in range(3):
        (part,) = input_data.train_dataset(
            [raw.pattern], transform, settings, 300, part=(worker, 3)
        ).take(1)
        assert part.inputs.shape == (10, 32, 32, 3)
        rows = slice(10 * worker, 10 * worker + 10)
        for one, other in zip(tf.nest.flatten(part), tf.nest.flatten(whole), strict=True):
            np.testing.assert_array_equal(one, other[rows])


@pytest.mark.parametrize("shuffle", MODES)
def test_examples_of_some_files_count_more(raw, transform, which, shuffle, tmp_path):
    """The mean is that over the examples, of patterns with several files."""
    for number, file in enumerate(sorted(tf.io.gfile.glob(raw.pattern))):
        folder = tmp_path / ("old" if number < 4 else "new")
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder)
    files = [f"{tmp_path}/{name}/*" for name in ("new", "old", "none")]
    settings = TrainSettings(batch_size=100, augment="none", shuffle=shuffle, shuffle_buffer=64)
    plain, weighted = (
        input_data.train_dataset(files, transform, settings, 300, weights=weights).take(3)
        for weights in ((), [3, 1, 7])
    )
    for one, other in zip(plain, weighted, strict=True):
        np.testing.assert_array_equal(one.inputs, other.inputs)
        factors = np.where(which(other.inputs) % 6 < 4, 1, 3)
        np.testing.assert_allclose(other.weights, factors * 300 / (200 + 3 * 100), rtol=1e-6)


def test_evaluation_has_every_example_once_in_the_order_of_the_files(raw, transform, which):
    dataset = input_data.eval_dataset([raw.pattern], transform, 128)
    assert dataset.element_spec.inputs.shape == (128, 32, 32, 3)
    for _ in range(2):
        batches = list(dataset)
        weights = np.concatenate([batch.weights for batch in batches])
        np.testing.assert_array_equal(weights, [1] * 300 + [0] * 84)
        images = np.concatenate([batch.inputs for batch in batches])
        labels = np.concatenate([batch.targets for batch in batches])
        order = which(images[:300])
        np.testing.assert_array_equal(order, sorted(range(300), key=lambda index: index % 6))
        np.testing.assert_array_equal(labels[:300], raw.labels[order])
        assert np.isfinite(images).all()


def test_evaluation_in_batches_that_divide_the_data(raw, transform):
    weights = [
        batch.weights.numpy() for batch in input_data.eval_dataset([raw.pattern], transform, 100)
    ]
    np.testing.assert_array_equal(weights, np.ones((3, 100)))


def test_materialised_examples_give_the_same_batches(raw, transform, transformed, train, tmp_path):
    for file in range(6):
        path = str(tmp_path / f"transformed_examples-{file:05d}-of-00006.gz")
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for index in range(file, 300, 6):
                example = tf.train.Example()
                feature = example.features.feature
                feature["image"].float_list.value.extend(transformed[index].ravel())
                feature["label"].int64_list.value.append(raw.labels[index])
                feature["id"].int64_list.value.append(raw.ids[index])
                writer.write(example.SerializeToString())
    materialised = [str(tmp_path / "*")]
    assert input_data.count_examples(materialised) == 300
    pairs = [
        (
            train(augment="crop,flip", shuffle=shuffle).take(3),
            train(materialised, augment="crop,flip", shuffle=shuffle).take(3),
        )
        for shuffle in MODES
    ]
    evaluate = input_data.eval_dataset
    pairs.append((evaluate([raw.pattern], transform, 70), evaluate(materialised, transform, 70)))
    for expected, given in pairs:
        for one, other in zip(expected, given, strict=True):
            for part, other_part in zip(one, other, strict=True):
                np.testing.assert_array_equal(part, other_part)


# --- what cannot be read ---


@pytest.fixture
def damaged(raw, tmp_path) -> tuple[list[str], pathlib.Path]:
    """A pattern, and the one file behind it that has a wrong byte after 20 records."""
    for path in sorted(pathlib.Path(raw.pattern).parent.iterdir()):
        shutil.copy(path, tmp_path)
    path = sorted(tmp_path.iterdir())[3]
    content = bytearray(path.read_bytes())
    content[int(20.5 * len(content) / 50)] ^= 1
    path.write_bytes(content)
    return [str(tmp_path / "*")], path


def test_a_damaged_file_is_named(damaged, train, transform):
    files, path = damaged
    for read in (
        input_data.count_examples,
        train,
        lambda files: input_data.eval_dataset(files, transform, 10),
    ):
        with pytest.raises(UserError) as caught:
            read(files)
        assert caught.value.file == str(path) and caught.value.record.startswith("byte ")


def test_a_truncated_file_is_named(damaged):
    files, path = damaged
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(UserError) as caught:
        input_data.count_examples(files)
    assert caught.value.record == "byte 9,420"


def test_no_files(train, tmp_path):
    pattern = str(tmp_path / "*")
    for read in (input_data.count_examples, train):
        with pytest.raises(UserError) as caught:
            read([pattern])
        assert caught.value.file == pattern
    with pytest.raises(UserError, match="paths or patterns"):
        input_data.count_examples([])


def test_no_examples(train, transform, tmp_path):
    (tmp_path / "empty").touch()
    for make in (train, lambda files: input_data.eval_dataset(files, transform, 10)):
        with pytest.raises(UserError) as caught:
            make([str(tmp_path / "*")])
        assert caught.value.file == str(tmp_path / "empty")


@pytest.mark.parametrize("count", [299, 301])
def test_another_number_of_examples_than_counted(train, count):
    with pytest.raises(UserError, match=f"300 .* {count}"):
        train(num_examples=count)


# --- which files Transform wrote ---

FLOAT, BYTES = (tf.io.FixedLenFeature([], dtype) for dtype in (tf.float32, tf.string))
SPARSE = tf.io.VarLenFeature(tf.int64)


@pytest.mark.parametrize(
    ("raw_spec", "transformed_spec", "name", "expected"),
    [
        ({"x": BYTES}, {"x": FLOAT}, "data-00000", True),
        ({"x": FLOAT}, {"x_xf": FLOAT}, "data-00000", False),
        ({"y": FLOAT}, {"x": FLOAT, "tags": SPARSE}, "data-00000", True),
        ({"x": FLOAT}, {"x": FLOAT}, "transformed_examples-00000-of-00001.gz", True),
        ({"x": FLOAT}, {"x": FLOAT}, "data_tfrecord-00000-of-00001.gz", False),
    ],
)
def test_raw_and_transformed_examples_are_told_apart(raw_spec, transformed_spec, name, expected):
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(1.0)
    record = example.SerializeToString()
    found = input_data._is_transformed(f"/data/{name}", record, raw_spec, transformed_spec)
    assert found is expected
