"""What other processes get, and what happens if they cannot."""

import threading

import keras
import numpy as np
import pytest

import stagecraft as sc
from stagecraft import given
from stagecraft.fitting import sources

X = np.arange(20, dtype=np.float32).reshape(10, 2)


def batches(source: sources.Source) -> list[list[np.ndarray]]:
    taken = source.train(1, (0, 1)).take(source.steps)
    return [[np.asarray(part) for part in (b.inputs, *b.targets, b.weights)] for b in taken]


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_stored_data_are_the_same(kind, tmp_path):
    import tensorflow as tf

    if kind == "arrays":
        source: sources.Source = sources.Arrays(X, X[:, 0], batch_size=4, seed=3)
    else:
        source = sources.Batches(tf.data.Dataset.from_tensor_slices((X, X[:, 0])).batch(4))
    stored = source.stored(str(tmp_path / "data"))
    for one, two in zip(batches(source), batches(stored), strict=True):
        for left, right in zip(one, two, strict=True):
            np.testing.assert_array_equal(left, right)
    assert (stored.steps, stored.batch_size, stored.short) == (3, 4, True)


def test_workers_take_their_rows():
    source = sources.Arrays(X, X[:, 0], batch_size=4, shuffle=False)
    [whole] = source.train(2, (0, 1)).take(1)  # two examples, and two of padding
    parts = [next(iter(source.train(2, (worker, 2)))) for worker in (0, 1)]
    np.testing.assert_array_equal(whole.weights, [2, 2, 0, 0])
    for place, leaf in enumerate((whole.inputs, *whole.targets, whole.weights)):
        leaves = [(part.inputs, *part.targets, part.weights)[place] for part in parts]
        np.testing.assert_array_equal(leaf, np.concatenate(leaves))


def test_objects_that_cannot_be_sent(messages):
    lock = threading.Lock()

    def loss(y, outputs):
        with lock:
            return keras.ops.abs(y - outputs)[:, 0]

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    workers = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
    with pytest.raises(given.UnpicklableError) as caught:
        sc.fit(model, X, X[:, :1], loss=loss, parallel=workers, verbose=0)
    assert caught.value.setting == "task"
    messages.check(str(caught.value))
