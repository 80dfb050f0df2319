"""What other processes get, and what happens if they cannot."""

import itertools
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import stagecraft as sc
from stagecraft import given, pickles
from stagecraft.fitting import sources

X = np.arange(20, dtype=np.float32).reshape(10, 2)


def batches(source: sources.Source, rows: tuple[int, int] = (0, 1)) -> list[list[np.ndarray]]:
    taken = source.train(1, rows).take(2 * source.steps)
    return [[np.asarray(part) for part in (b.inputs, *b.targets, b.weights)] for b in taken]


def assert_same(found: list[list[np.ndarray]], expected: list[list[np.ndarray]]) -> None:
    for one, two in zip(found, expected, strict=True):
        for left, right in zip(one, two, strict=True):
            np.testing.assert_array_equal(left, right)


def test_arrays_in_files_are_the_same(tmp_path):
    source = sources.Arrays(X, X[:, 0], batch_size=4, seed=3)
    with source.sent(str(tmp_path / "data")) as sent:
        assert_same(batches(sent), batches(source))
        assert (sent.steps, sent.batch_size, sent.short) == (3, 4, True)


def pairs() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, X[:, 0]))


def counted() -> tf.data.Dataset:
    """Numbers that no second iteration gives again."""
    numbers = itertools.count()

    def generate() -> Iterator[tuple[np.ndarray, float]]:
        for _ in range(3):
            number = next(numbers)
            yield np.full((4, 2), number, np.float32), np.full(4, number, np.float32)

    specs = tf.TensorSpec((4, 2)), tf.TensorSpec((4,))
    return tf.data.Dataset.from_generator(generate, output_signature=specs)


# Datasets of which one iteration is not like the other, and the steps of an epoch.
DATASETS: dict[str, tuple[Callable[[], tf.data.Dataset], int]] = {
    "short epochs": (lambda: pairs().batch(2), 2),
    "repeated": (lambda: pairs().batch(4).repeat(), 2),
    "shuffled": (lambda: pairs().shuffle(10, seed=2).batch(4), 3),
    "shuffled and repeated": (lambda: pairs().shuffle(10, seed=2).repeat().batch(4), 2),
    "a generator": (counted, 2),
    "random": (lambda: pairs().batch(5).map(lambda x, y: (x + tf.random.uniform([]), y)), 1),
    "texts": (lambda: pairs().batch(5).map(lambda x, y: (tf.strings.as_string(x), y)), 2),
    "several inputs": (lambda: pairs().batch(5).map(lambda x, y: ({"a": x, "b": (y, x)}, y)), 2),
}


@pytest.mark.parametrize("name", DATASETS)
def test_processes_see_what_one_device_sees(name, monkeypatch):
    """Training of several epochs and two evaluations, for each worker at its own pace."""
    (make, steps), workers = DATASETS[name], 3
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))

    def made() -> list[sources.Source]:
        tf.random.set_seed(1)
        return [sources.Batches(make(), steps=steps) for _ in range(2)]

    def seen(
        training: sources.Source, validation: sources.Source, rows: tuple[int, int]
    ) -> list[list[Any]]:
        evaluated = validation.evaluate(validation.batch_size, rows)
        passes = [training.train(1, rows).take(5 * steps), evaluated, evaluated]
        found = [tf.nest.flatten((b.inputs, b.targets)) for each in passes for b in each]
        return [[part.numpy() for part in parts] for parts in found]

    expected = seen(*made(), (0, 1))
    one, two = made()
    with one.sent("") as data, two.sent("") as validation, futures.ThreadPoolExecutor() as pool:
        sent = pickles.dumps((data, validation))
        parts = [*pool.map(lambda w: seen(*pickle.loads(sent), (w, workers)), range(workers))]
    whole = [
        [np.concatenate(part) for part in zip(*of_workers, strict=True)]
        for of_workers in zip(*parts, strict=True)
    ]
    assert_same(whole, expected)


def test_a_process_that_leaves_holds_up_nobody(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    source = sources.Batches(pairs().batch(2).repeat(), steps=2)
    taken: list[int] = []
    with source.sent("") as sent, futures.ThreadPoolExecutor() as pool:

        def take(worker: int, count: int) -> None:
            for _ in pickle.loads(copies).train(0, (worker, 2)).take(count):
                taken.append(worker)

        copies = pickles.dumps(sent)

        for each in [pool.submit(take, 0, 1), pool.submit(take, 1, 100)]:
            each.result(timeout=60)
    assert taken.count(1) == 100


DELETE = """
import pickle, sys
from stagecraft.trainer_module.engines import feeding
source = pickle.loads(open(sys.argv[1], "rb").read())
for count in range(60):
    iterator = feeding.on_host(source.train(0, (0, 1)))
    for _ in range(count % 7):
        next(iterator)
    del iterator
iterator = feeding.on_host(source.train(0, (0, 1)))
next(iterator)  # it is there when the interpreter ends
"""


@pytest.mark.slow
def test_iterators_end_at_once_in_the_middle_of_the_data(tmp_path):
    """Deletion holds Python's lock, which a thread in the background would wait for."""
    source = sources.Batches(pairs().batch(2))
    path = os.pathsep.join(sys.path)
    with source.sent("") as sent:
        (tmp_path / "sent.pkl").write_bytes(pickles.dumps(sent))
        words = [sys.executable, "-c", DELETE, str(tmp_path / "sent.pkl")]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(words, capture_output=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_error_of_a_dataset_is_the_callers():
    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield X[:4], X[:4, 0]
        raise ZeroDivisionError

    specs = tf.TensorSpec((4, 2)), tf.TensorSpec((4,))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=specs)
    source = sources.Batches(dataset, steps=3)
    with source.sent("") as sent:
        assert source.error is None
        with pytest.raises(tf.errors.OpError):
            batches(sent)
        assert isinstance(source.error, tf.errors.OpError)
        assert "ZeroDivisionError" in str(source.error)


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
