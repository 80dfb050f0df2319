"""What is wrong with data of the caller's: the argument to blame, and what works."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stagecraft.schemas.errors import SettingError, UserError
from stagecraft.trainer_module.training import diverged

_ARGUMENTS = ("x", "y", "sample_weight")

_DATA = "arrays, or a tf.data.Dataset of batches (from_generator makes one of a generator)"

_DIVERGED = {
    diverged.INPUTS: "x",
    diverged.RATE: "Lower the learning rate of the optimizer, or raise it in a schedule.",
    "train.learning_rate": "the learning rate",
}
"""Words of pipelines -> those of arguments."""


def kind(x: Any) -> None:
    """Refuses generators, ``PyDataset`` and other objects that are neither arrays nor a dataset.

    Raises:
        SettingError: as said.
    """
    if isinstance(x, (Mapping, Sequence, memoryview)) or hasattr(x, "__array__"):
        return
    raise SettingError("x", type(x).__name__, "is neither arrays nor a tf.data.Dataset", _DATA)


def array(argument: str, given: Any) -> np.ndarray:
    """An array of one dimension or more.

    Raises:
        SettingError: it is not one.
    """
    use = "a NumPy array"
    try:
        made = np.asarray(given)
    except ValueError as error:
        problem = "is not an array: its parts have different lengths"
        raise SettingError(argument, type(given).__name__, problem, use) from error
    if made.dtype.kind == "O" and made.size and all(isinstance(x, str) for x in made.flat):
        made = made.astype(str)
    if made.dtype.kind == "O" or not made.ndim:
        raise SettingError(argument, type(given).__name__, "is not an array", use)
    return made


def counts(parts: Sequence[Any]) -> int:
    """The number of examples of x, y and perhaps sample_weight.

    Raises:
        SettingError: there are none, or the arrays have different numbers.
    """
    found = [[len(leaf) for leaf in tf.nest.flatten(part)] for part in parts]
    if not found[0]:
        raise SettingError("x", "an empty structure", "has no arrays", "a NumPy array")
    count = found[0][0]
    for argument, own in zip(_ARGUMENTS, found, strict=False):
        if 0 in own:
            raise SettingError(argument, "0 examples", "are no data", "an array with examples")
        for other in own:
            if other != count:
                problem = f"do not fit the {count} examples of x"
                use = "arrays with the same first dimension"
                raise SettingError(argument, f"{other} examples", problem, use)
    return count


def elements(spec: Sequence[Any]) -> None:
    """Refuses elements of a dataset that are no batches.

    Args:
        spec: of an element: x, y and perhaps sample_weight.

    Raises:
        SettingError: an element is an example, or does not say its rank.
    """
    leaves = tf.nest.flatten(spec)
    if any(leaf.shape.rank is None for leaf in leaves):
        problem = "has elements of unknown rank"
        use = "tf.ensure_shape(x, [None, 4]) in dataset.map, or an output_signature with shapes"
        raise SettingError("x", "the dataset", problem, use)
    sizes = {leaf.shape[0] if leaf.shape.rank else 0 for leaf in leaves} - {None}
    if 0 in sizes or len(sizes) > 1:
        raise _single()


def steps_of(of_pass: int | None, steps: int, epochs: int) -> None:
    """Refuses ``steps_per_epoch`` with which the data ends within an epoch, where Keras stops.

    Args:
        of_pass: batches of a pass through the data; None: not known, or infinite.

    Raises:
        SettingError: as said.
    """
    if of_pass is not None and steps * epochs > of_pass and of_pass % steps:
        problem = f"does not divide the {of_pass} batches of the data, which end within an epoch"
        use = f"{of_pass}, or a dataset that ends with .repeat()"
        raise SettingError("steps_per_epoch", steps, problem, use)


def batched(data: Any, model: Any) -> None:
    """Refuses a dataset whose elements have the shape of one example of the model.

    Raises:
        SettingError: as said.
    """
    if not isinstance(model, keras.Model) or not isinstance(data, tf.data.Dataset):
        return
    wanted = [tuple(each.shape[1:]) for each in getattr(model, "inputs", None) or ()]
    given = [tuple(leaf.shape) for leaf in tf.nest.flatten(data.element_spec[0])]
    of_one = all(shape in ((), (1,)) for shape in wanted)  # [1] may be a batch of one number
    if given == wanted and not of_one:
        raise _single()


def _single() -> SettingError:
    problem = "has single examples and no batches"
    return SettingError("x", "the dataset", problem, "dataset.batch(32)")


@contextlib.contextmanager
def of_validation() -> Iterator[None]:
    """Names ``validation_data`` in errors of x, y and sample_weight."""
    try:
        yield
    except SettingError as error:
        if error.setting in _ARGUMENTS:
            error.args = (f"validation_data: in {error}",)
            error.setting = "validation_data"
        raise


@contextlib.contextmanager
def diverged_in_own_words() -> Iterator[None]:
    """Names arguments in errors for a loss that is not finite, in place of a pipeline's parts."""
    try:
        yield
    except UserError as error:  # of this process or of a worker
        text = str(error)
        for before, after in _DIVERGED.items():
            text = text.replace(before, after)
        error.args = (text, *error.args[1:])
        raise
