"""Several processes: scripts of TF_CONFIG, and those that ``fit`` starts."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
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
from stagecraft.fitting import streams
from stagecraft.trainer_module.parallel.cluster import free_ports

HERE = pathlib.Path(__file__).parent

X = np.arange(20, dtype=np.float32).reshape(10, 2)


def together(name: str, folder: pathlib.Path, workers: int = 2) -> list[str]:
    """Runs the script in each process; returns what they print."""
    addresses = [f"localhost:{port}" for port in free_ports(workers)]
    running = []
    for index in range(workers):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        if workers > 1:
            environment["TF_CONFIG"] = json.dumps(task)
        words = [sys.executable, str(HERE / "together.py"), name, str(folder / f"{name}.npz")]
        running.append(
            subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
                cwd=folder,
            )
        )
    with futures.ThreadPoolExecutor() as pool:
        said = [*pool.map(lambda process: process.communicate(timeout=200)[0], running)]
    if name != "other data":
        assert [process.returncode for process in running] == [0] * workers, said[0][-3000:]
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["workers", "stages"])
def test_a_script_in_each_process_trains_what_one_device_trains(name, tmp_path):
    """The same shuffles, dropout, validations, and what callbacks of the chief set."""
    together("one", tmp_path, 1)
    together(name, tmp_path)
    expected, found = (np.load(tmp_path / f"{each}.npz") for each in ("one", name))
    assert found.files == expected.files
    for key in found.files:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_processes_that_read_other_batches_are_refused(tmp_path):
    assert any("refused: x" in said for said in together("other data", tmp_path))


class Own(keras.Model):
    """No ``get_config`` says what it computes."""

    def __init__(self, factor: float):
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(8, "relu"), keras.layers.Dense(2)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        return self.factor * self.last(self.hidden(inputs))


def scaled_error(targets: Any, outputs: Any) -> Any:
    return 2 * keras.ops.mean(keras.ops.square(targets - outputs), axis=-1)


TOPOLOGIES = {
    "workers": {"strategy": "multi_worker_mirrored", "workers": 2},
    "servers": {"strategy": "parameter_server", "workers": 2, "ps": 2},
    "virtual devices": {"strategy": "grid", "stages": 2, "microbatches": 2, "virtual_devices": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_fit_starts_processes(name, as_before, tmp_path, capsys):
    """TensorFlow has started here; an epoch ends within the data of a dataset."""
    tf.constant(0)
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((56, 4)).astype("f"), draw.standard_normal((56, 2)).astype("f")
    results = []
    for parallel in (None, sc.Parallel(**TOPOLOGIES[name])):
        keras.utils.set_random_seed(2)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(8, seed=1).batch(8).repeat()
        model = Own(0.5)
        hidden = model.hidden  # not built
        history = sc.fit(
            model,
            dataset,
            loss=scaled_error,
            optimizer=keras.optimizers.Adam(0.01),
            metrics=["mae"],
            parallel=parallel,
            seed=3,
            steps_per_epoch=5,
            epochs=2,
            validation_data=(x, y),
            callbacks=keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        )
        results.append((model, history))
    (one, alone), (other, found) = results
    assert capsys.readouterr().out.count("Epoch 2/2") == 2
    assert (tmp_path / "log.csv").read_text().count("\n") == 3
    assert found.topology.strategy == parallel.strategy and found.model is other
    # Two epochs of float32 steps of 0.01: sums of 8 terms in another order.
    for left, right in zip(one.variables, other.variables, strict=True):
        np.testing.assert_allclose(left, right, rtol=2**-16, atol=2**-16)
    for left, right in zip(one.optimizer.variables, other.optimizer.variables, strict=True):
        np.testing.assert_allclose(left, right, rtol=2**-14, atol=2**-16)
    for key, values in alone.history.items():
        np.testing.assert_allclose(found.history[key], values, rtol=2**-14)
    assert other.hidden is hidden and hidden.built
    other.fit(x, y, verbose=0)  # it goes on as a model of this process


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["workers", pytest.param("servers", marks=pytest.mark.full), "virtual devices"],
)
def test_parity_is_proved_in_processes(name, as_before):
    draw = np.random.default_rng(0)
    model = Own(0.5)
    x, y = draw.standard_normal((20, 4)), draw.standard_normal((20, 2))
    model(x)
    start = model.get_weights()
    proof = sc.check_parity(
        model, x, y, parallel=sc.Parallel(**TOPOLOGIES[name]), loss="mse", batch_size=8
    )
    assert proof and len(proof.rows) == 1 and "<table>" in proof._repr_html_()
    assert 0 <= proof.rows[0].findings[0].difference < 1e-12  # in float64
    for one, two in zip(start, model.get_weights(), strict=True):
        assert np.array_equal(one, two)


@pytest.mark.slow
def test_parity_and_muon_of_a_function(as_before):
    def build() -> keras.Model:
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(2)]
        return keras.Sequential([keras.Input((4,)), *layers])

    x = np.random.default_rng(0).standard_normal((16, 4))
    parts = sc.Parallel(**TOPOLOGIES["virtual devices"], precision="mixed_bfloat16")
    proof = sc.check_parity(build, x, x[:, :2], parallel=parts, loss="mse", optimizer="muon")
    assert proof and proof.rows[0].findings[0].difference < 1e-12
    model = build()
    sc.fit(
        model,
        x,
        x[:, :2],
        loss="mse",
        optimizer="muon",
        parallel=sc.Parallel(**TOPOLOGIES["virtual devices"]),
        verbose=0,
    )
    assert isinstance(model.optimizer, sc.Muon) and int(model.optimizer.iterations) == 1


@pytest.mark.slow
def test_parity_finds_a_model_that_draws_numbers_of_its_own(as_before):
    class Noisy(Own):
        def call(self, inputs: Any) -> Any:
            noise = tf.random.normal(tf.shape(inputs), dtype=inputs.dtype)
            return super().call(inputs + 0.1 * noise)

    x = np.ones((16, 4))
    workers = sc.Parallel(**TOPOLOGIES["workers"])
    proof = sc.check_parity(Noisy(1.0), x, x[:, :2], parallel=workers, loss="mse")
    assert not proof and proof.rows[0].verdict == "failed"
    assert "keras.random" in proof.rows[0].cause


def test_objects_that_cannot_be_sent():
    lock = threading.Lock()

    def loss(y: Any, outputs: Any) -> Any:
        with lock:
            return keras.ops.abs(y - outputs)[:, 0]

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    workers = sc.Parallel(strategy="multi_worker_mirrored", workers=2)
    with pytest.raises(sc.UserError) as caught:
        sc.fit(model, X, X[:, :1], loss=loss, parallel=workers, verbose=0)
    assert caught.value.setting == "loss"


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


DATASETS: dict[str, Callable[[], tf.data.Dataset]] = {
    "shuffled": lambda: pairs().shuffle(10, seed=2).batch(4),
    "shuffled and repeated": lambda: pairs().shuffle(10, seed=2).repeat(3).batch(4),
    "a generator": counted,
    "random": lambda: pairs().batch(5).map(lambda x, y: (x + tf.random.uniform([]), y)),
    "texts": lambda: pairs().batch(5).map(lambda x, y: (tf.strings.as_string(x), y)),
    "several inputs": lambda: pairs().batch(5).map(lambda x, y: ({"a": x, "b": (y, x)}, y)),
}


def read(address: str, attempt: str, number: int, reader: int, readers: int) -> list[Any]:
    request = streams._Request(attempt, number, reader, readers)
    return [list(parts) for parts in streams._read(address, request)]


@pytest.mark.parametrize("name", DATASETS)
def test_processes_see_what_one_device_sees(name):
    """Three iterations, for each worker at its own pace."""
    tf.random.set_seed(1)
    dataset = DATASETS[name]()
    expected = [[[np.asarray(part) for part in tf.nest.flatten(batch)] for batch in dataset]
                for _ in range(3)]  # fmt: skip
    tf.random.set_seed(1)
    with streams.Server(DATASETS[name]()) as server, futures.ThreadPoolExecutor() as pool:
        for number in range(3):
            taken = [
                pool.submit(read, server.address, "one", number, reader, 3) for reader in range(3)
            ]
            for each in taken:
                for one, two in zip(each.result(60), expected[number], strict=True):
                    for left, right in zip(one, two, strict=True):
                        np.testing.assert_array_equal(left, right)


def test_a_process_that_leaves_holds_up_nobody():
    with (
        streams.Server(pairs().batch(2).repeat(30)) as server,
        futures.ThreadPoolExecutor() as pool,
    ):

        def leave() -> None:
            next(streams._read(server.address, streams._Request("one", 0, 0, 2)))

        stays = pool.submit(read, server.address, "one", 0, 1, 2)
        pool.submit(leave).result(timeout=60)
        assert len(stays.result(timeout=60)) == 150


def test_the_error_of_a_dataset_is_the_callers():
    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield X[:4], X[:4, 0]
        raise ZeroDivisionError

    specs = tf.TensorSpec((4, 2)), tf.TensorSpec((4,))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=specs)
    with streams.Server(dataset) as server:
        assert server.error is None
        with pytest.raises(RuntimeError):
            read(server.address, "one", 0, 0, 1)
        assert isinstance(server.error, tf.errors.OpError)
        assert "ZeroDivisionError" in str(server.error)


DELETE = """
import sys, tensorflow as tf
from stagecraft.fitting import streams
from stagecraft.trainer_module.processes.process import run_and_exit

def main():
    global iterator
    specs = tf.TensorSpec((None, 2)), tf.TensorSpec((None,))
    for count in range(60):
        iterator = iter(streams.remote(sys.argv[1], specs, -2))
        for _ in range(count % 4):
            next(iterator)
        del iterator
    iterator = iter(streams.remote(sys.argv[1], specs, -2))
    next(iterator)  # it is there when the interpreter ends
    return 0

run_and_exit(main)
"""


@pytest.mark.slow
def test_iterators_end_at_once_in_the_middle_of_the_data():
    """Deletion holds Python's lock, which a thread in the background would wait for."""
    path = os.pathsep.join(sys.path)
    with streams.Server(pairs().batch(2)) as server:
        words = [sys.executable, "-c", DELETE, server.address]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(words, capture_output=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
