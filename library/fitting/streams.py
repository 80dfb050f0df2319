"""Batches of a dataset of this process, for the processes of a training on this machine.

A dataset may shuffle, draw random numbers or call Python code of the caller's, so a copy of it in
another process would give other batches. One iterator in this process gives them, and each process
takes each of them, over a Unix socket in a folder of this user's.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import tensorflow as tf

from stagecraft.common.errors import said
from stagecraft.parallel_model import workers
from stagecraft.trainer_module.engines import feeding
from stagecraft.trainer_module.processes import process

_AHEAD = 8
"""Batches that a process may take before the slowest one has taken the first of them."""

_LONGEST_ADDRESS = 107
"""Bytes of a Unix socket's path (unix(7))."""


@dataclasses.dataclass(frozen=True)
class _Request:
    """The iteration that a process wants to read, and which reader it is."""

    attempt: str
    """Name of the processes that run together."""
    number: int
    """Of the iterations that this process has begun."""
    reader: int
    readers: int


_begun: collections.Counter[tuple[str, bool]] = collections.Counter()
"""Iterations that this process has begun, by address, and by whether it shares them."""


def remote(address: str, element_spec: Any, cardinality: int) -> tf.data.Dataset:
    """A dataset of the process with a :class:`Server`.

    Processes that work together begin the same iterations in the same order, and get the same
    batches.
    """
    flat = tf.nest.flatten(element_spec, expand_composites=True)

    def read() -> Iterator[tuple[Any, ...]]:
        reader, readers = workers.place()
        shares = readers > 1
        # Each attempt has other ports.
        name = json.dumps(json.loads(os.environ["TF_CONFIG"])["cluster"]) if shares else ""
        process.skip_destruction()
        number = _begun[address, shares]
        _begun[address, shares] += 1
        yield from _read(address, _Request(name or str(os.getpid()), number, reader, readers))

    def packed(*parts: Any) -> Any:
        return tf.nest.pack_sequence_as(element_spec, parts, expand_composites=True)

    signature = tuple(tf.TensorSpec(each.shape, each.dtype) for each in flat)
    dataset = tf.data.Dataset.from_generator(read, output_signature=signature).map(packed)
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _read(address: str, request: _Request) -> Iterator[tuple[Any, ...]]:
    with Client(address) as connection:
        connection.send(request)
        connection.send_bytes(b"next")
        while True:
            parts, failure = connection.recv()
            if failure:
                raise RuntimeError(failure)
            if parts is None:
                return
            connection.send_bytes(b"next")  # the server makes it during the step
            yield parts


class Server:
    """Gives the batches of a dataset to other processes, while its ``with`` block runs."""

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        self._streams: dict[_Request, _Stream] = {}
        self._lock = threading.Lock()
        self._closing = False
        self.error: Exception | None = None
        """The exception that the dataset raised."""

    def __enter__(self) -> Server:
        self._folder = tempfile.mkdtemp(prefix="stagecraft-")
        if len(os.fsencode(os.path.join(self._folder, "batches"))) > _LONGEST_ADDRESS:
            os.rmdir(self._folder)
            self._folder = tempfile.mkdtemp(prefix="stagecraft-", dir="/tmp")
        self.address = os.path.join(self._folder, "batches")
        """Of :func:`remote`."""
        self._listener = Listener(self.address, "AF_UNIX", backlog=128)
        self._thread = threading.Thread(target=self._accept, name="batches", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            Client(self.address).close()  # wakes the thread that accepts
        self._thread.join()
        with self._lock:
            for stream in self._streams.values():
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        with self._listener as listener:
            while True:
                connection = listener.accept()
                if self._closing:
                    connection.close()
                    return
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            request: _Request = connection.recv()
            reader, stream = request.reader, self._stream(request)
            try:
                while connection.recv_bytes():
                    connection.send_bytes(stream.next(reader))
            finally:
                stream.leave(reader)

    def _stream(self, request: _Request) -> _Stream:
        """The iteration that the processes of a request share."""
        key = dataclasses.replace(request, reader=0)
        with self._lock:
            for old in [each for each, stream in self._streams.items() if stream.is_over]:
                del self._streams[old]
            if key not in self._streams:
                self._streams[key] = _Stream(self._dataset, request.readers, self._failed)
            return self._streams[key]

    def _failed(self, error: Exception) -> None:
        self.error = self.error or error


class _Stream:
    """One iteration over a dataset, for several readers, each with a thread here."""

    def __init__(self, dataset: tf.data.Dataset, readers: int, on_error: Any):
        self._iterator = feeding.on_host(dataset)
        self._on_error = on_error
        self._taken: list[float] = [0] * readers
        """Batches that each reader has taken; infinity: it has left."""
        self._made = 0
        self._kept: dict[int, bytes] = {}
        self._closed = False
        self._changed = threading.Condition()

    @property
    def is_over(self) -> bool:
        """Whether all readers have left."""
        return min(self._taken) == math.inf

    def next(self, reader: int) -> bytes:
        """The next batch for a reader, pickled; waits for readers that are far behind."""
        with self._changed:
            index = int(self._taken[reader])
            self._changed.wait_for(lambda: self._closed or index < min(self._taken) + _AHEAD)
            if index == self._made and not self._closed:
                self._kept[index], self._made = self._make(), self._made + 1
            found = self._kept.get(index) or pickle.dumps((None, ""))
            self._move(reader, index + 1)
            return found

    def leave(self, reader: int) -> None:
        """Waits for this reader no longer."""
        with self._changed:
            self._move(reader, math.inf)

    def close(self) -> None:
        """Ends the iteration for all readers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _move(self, reader: int, to: float) -> None:
        self._taken[reader] = to
        for index in [each for each in self._kept if each < min(self._taken)]:
            del self._kept[index]
        self._changed.notify_all()

    def _make(self) -> bytes:
        parts, failure = None, ""
        try:
            element = next(self._iterator, None)
            if element is not None:
                leaves = tf.nest.flatten(element, expand_composites=True)
                parts = tuple(leaf.numpy() for leaf in leaves)
        except Exception as error:  # whatever the caller's functions raise
            self._on_error(error)
            failure = said(error)
        return pickle.dumps((parts, failure), protocol=5)
