"""Reads the files that TFMA writes, without importing TFMA, which takes as long as TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import posixpath
import sys
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_TFMA = "tensorflow_model_analysis"
_PACKAGES = (_TFMA, f"{_TFMA}.proto")


def metrics(directory: str) -> Iterator[Any]:
    """The ``MetricsForSlice`` of each slice, as ``tfma.load_metrics`` reads them."""
    message = _protos("metrics_for_slice_pb2").MetricsForSlice
    return map(message.FromString, _records(directory, "metrics"))


def plots(directory: str) -> Iterator[Any]:
    """The ``PlotsForSlice`` of each slice, as ``tfma.load_plots`` reads them."""
    message = _protos("metrics_for_slice_pb2").PlotsForSlice
    return map(message.FromString, _records(directory, "plots"))


def validation(directory: str) -> Any:
    """The ``ValidationResult``, as ``tfma.load_validation_result`` reads it."""
    (record,) = _records(directory, "validations")
    return _protos("validation_result_pb2").ValidationResult.FromString(record)


def _records(directory: str, kind: str) -> Iterator[bytes]:
    paths = sorted(tf.io.gfile.glob(posixpath.join(directory, f"{kind}*.tfrecord")))
    return iter(tf.data.TFRecordDataset(paths).as_numpy_iterator())


def _protos(name: str) -> types.ModuleType:
    """A module of ``tensorflow_model_analysis.proto``."""
    with _without_init():
        # In newer versions, validation_result_pb2 needs this module and does not import it.
        importlib.import_module(f"{_PACKAGES[-1]}.config_pb2")
        return importlib.import_module(f"{_PACKAGES[-1]}.{name}")


@contextlib.contextmanager
def _without_init() -> Iterator[None]:
    """Lets modules of TFMA's packages be imported though the packages are not.

    A package that is imported already stays. A later import of TFMA finds the same modules, so
    each message has one class.
    """
    spec = importlib.util.find_spec(_TFMA)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    bare = [name for name in _PACKAGES if name not in sys.modules]
    for name in bare:
        module = types.ModuleType(name)
        module.__path__ = [posixpath.join(folder, *name.split(".")[1:])]
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in bare:
            del sys.modules[name]
