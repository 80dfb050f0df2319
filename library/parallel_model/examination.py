"""Whether a batch of a model can be computed in parts: decided by the caller's own batches.

The model computes a batch as a whole and in parts, with its own weights, and the same random
numbers. The outputs of a row must be the same. A loss that a layer adds, and a variable that a
layer assigns, may be a sum or a mean over the rows. What is neither cannot be divided.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras.src import backend

from stagecraft.parallel_model.parts import Part
from stagecraft.trainer_module.models.layers.overrides import ModelRefusedError
from stagecraft.trainer_module.models.layers.walk import intercepted, walk

_log = logging.getLogger(__name__)

SUM, MEAN, SAME = "sum", "mean", "same"

_WHOLE = "train in one part: replicas, microbatches and accumulate of 1"


class Outcome(NamedTuple):
    """Results of the model for a batch, computed in some parts."""

    outputs: list[Any]
    losses: list[list[Any]]
    """Of each part: the losses that layers add."""
    updates: dict[str, list[Any]]
    """Id of an assigned variable -> its value in each part."""
    shares: list[Any]
    """Of each part, of the rows."""


class Found(NamedTuple):
    """The outcomes of an examination."""

    whole: Outcome
    again: Outcome
    """A second time ``whole``: differs where random numbers are not Keras's."""
    divided: Outcome
    before: dict[str, Any]
    """Id of an assigned variable -> its value before."""


class Kinds:
    """Kinds of a model's losses and assigned variables, as far as they are known."""

    def __init__(self) -> None:
        self._losses: dict[bool, list[set[str]]] = {}
        self._variables: dict[int, set[str]] = {}
        self._warned = False

    def are_known(self, training: bool) -> bool:
        """Whether each loss has one kind."""
        return all(len(kinds) == 1 for kinds in self._losses.get(training, []))

    def of_loss(self, training: bool, place: int) -> str:
        """The kind of an added loss."""
        kinds = self._losses.get(training, self._losses.get(not training, []))
        return SUM if place < len(kinds) and kinds[place] == {SUM} else MEAN

    def of_variable(self, key: int, variable: Any) -> str:
        """The kind of an assigned variable; of statistics of a batch, the mean."""
        kinds = self._variables.get(key)
        if kinds:
            return next(each for each in (SAME, MEAN, SUM) if each in kinds)
        return MEAN if "float" in str(variable.dtype) else SAME

    def learn(self, found: Found, training: bool, model: Any) -> None:
        """Learns from an examination.

        Raises:
            ModelRefusedError: the model cannot be divided.
        """
        self._check_outputs(found, model)
        self._learn_losses(found, training, model)
        self._learn_variables(found, model)

    def _check_outputs(self, found: Found, model: Any) -> None:
        for whole, again, divided in zip(
            found.whole.outputs, found.again.outputs, found.divided.outputs, strict=True
        ):
            if not near(whole, again):
                if not self._warned:
                    _log.warning(
                        "%s draws random numbers that are not Keras's, so they differ between "
                        "topologies; use keras.random with a SeedGenerator",
                        model.name,
                    )
                self._warned = True
                return
            if not near(whole, divided):
                raise ModelRefusedError(
                    model.name,
                    "computes something else for a row if the other rows of its batch are others, "
                    "and the topology divides each batch into parts",
                    _WHOLE,
                )

    def _learn_losses(self, found: Found, training: bool, model: Any) -> None:
        shares = np.array(found.divided.shares)
        count = len(found.whole.losses[0])
        known = self._losses.setdefault(training, [])
        known += [{SUM, MEAN} for _ in range(count - len(known))]
        for place in range(count):
            whole = found.whole.losses[0][place]
            if not near(whole, found.again.losses[0][place]):
                continue
            of_parts = np.array([np.asarray(each[place], float) for each in found.divided.losses])
            values = {SUM: of_parts[shares > 0].sum(), MEAN: (of_parts * shares).sum()}
            dtype = whole.dtype
            known[place] &= {kind for kind, value in values.items() if near(whole, value, dtype)}
            if not known[place]:
                raise ModelRefusedError(
                    model.name,
                    "adds a loss that is neither a sum nor a mean over the rows, and the topology "
                    "divides each batch into parts",
                    f"add a sum or a mean over the examples, or {_WHOLE}",
                )

    def _learn_variables(self, found: Found, model: Any) -> None:
        shares = np.array(found.divided.shares)
        paths = {str(id(variable)): variable.path for variable in model.variables}
        for key, [whole] in found.whole.updates.items():
            [again] = found.again.updates[key]
            values, before = found.divided.updates.get(key), found.before.get(key)
            if values is None or not near(whole, again):
                continue
            whole, before = (_wide(each) for each in (whole, before))
            wide = [_wide(each) for each in values]
            there = [each for each, share in zip(wide, shares, strict=True) if share > 0]
            results = {
                SAME: wide[0],
                MEAN: sum(each * share for each, share in zip(wide, shares, strict=True)),
                SUM: before + sum(each - before for each in there),
            }
            dtype = found.whole.updates[key][0].dtype
            kinds = {kind for kind, value in results.items() if near(whole, value, dtype)}
            if SAME in kinds and not all(near(wide[0], each, dtype) for each in wide):
                kinds -= {SAME}
            if not dtype.is_floating:
                kinds -= {MEAN}
            known = self._variables.setdefault(int(key), {SAME, MEAN, SUM})
            known &= kinds
            if not known:
                raise ModelRefusedError(
                    f"the variable {paths.get(key, 'of a layer')!r}",
                    "is assigned a value that is neither a sum nor a mean over the rows, and the "
                    "topology divides each batch into parts",
                    f"assign a mean over the examples, or {_WHOLE}",
                )


class Call(NamedTuple):
    """A call of a layer without inner layers."""

    path: str
    taken: list[Any]
    given: list[Any]
    losses: list[Any]


@contextlib.contextmanager
def watched(model: Any) -> Iterator[list[Call]]:
    """In the block, the calls of the innermost layers are added to the list."""
    paths = {id(layer): path for path, layer in walk(model) if not any(walk(layer))}
    calls: list[Call] = []

    def wrap(layer: Any, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            known = len(_losses())
            outputs = own(*args, **kwargs)
            taken, given = _with_rows((args, kwargs)), _with_rows(outputs)
            calls.append(Call(paths[id(layer)], taken, given, _losses()[known:]))
            return outputs

        return call

    with intercepted([layer for _, layer in walk(model) if id(layer) in paths], wrap):
        yield calls


def undivided(whole: Sequence[Call], parts: Sequence[Call], divided: Sequence[Part]) -> str:
    """The path of the first layer that computes something else in parts; empty: there is none.

    Args:
        whole: the calls for a batch.
        parts: those for its parts, one after the other.
        divided: the parts.
    """
    if any(tf.is_symbolic_tensor(each) for call in parts for each in call.given):
        return ""  # compiled
    shares = np.array([float(part.share(tf.float64)) for part in divided])

    def equal(one: Sequence[Any], others: Sequence[Sequence[Any]]) -> bool:
        joined = [
            tf.concat([x[: part.count] for x, part in zip(each, divided, strict=True)], 0)
            for each in zip(*others, strict=True)
        ]
        return all(map(near, one, joined))

    for place, call in enumerate(whole):
        pieces = parts[place :: len(whole)]
        if [each.path for each in pieces] != [call.path] * len(divided):
            return ""
        if equal(call.taken, [each.taken for each in pieces]) and not (
            equal(call.given, [each.given for each in pieces])
            and all(
                _is_divided(one, np.array(others, float), shares)
                for one, *others in zip(call.losses, *(e.losses for e in pieces), strict=True)
            )
        ):
            return call.path
    return ""


def _is_divided(one: Any, others: np.ndarray, shares: np.ndarray) -> bool:
    return any(near(one, value, one.dtype) for value in (others.sum(), (others * shares).sum()))


def _losses() -> list[Any]:
    scope = backend.get_stateless_scope() if backend.in_stateless_scope() else None
    return list(getattr(scope, "losses", None) or ())


def _with_rows(values: Any) -> list[Any]:
    leaves = tf.nest.flatten(values)
    return [each for each in leaves if isinstance(each, tf.Tensor) and each.shape.rank]


def term(
    kind: str, values: Sequence[tf.Tensor], before: tf.Tensor, divided: Sequence[Part]
) -> tf.Tensor:
    """A term that parts add to a variable after a batch, from the values after them."""
    if kind == MEAN:
        return tf.add_n([v * p.share(v.dtype) for v, p in zip(values, divided, strict=True)])
    return tf.add_n(
        [
            tf.where(part.count > 0, value - before, tf.zeros_like(before))
            for value, part in zip(values, divided, strict=True)
        ]
    )


def near(one: Any, other: Any, dtype: tf.DType | None = None) -> bool:
    """Whether two results are equal but for rounding: to half of the digits of their dtype."""
    dtype = dtype or one.dtype
    one, other = _wide(one), _wide(other)
    if one.shape != other.shape:
        return False
    if one.dtype == object or not dtype.is_floating:
        return bool((one == other).all())
    scale = max(np.abs(one[np.isfinite(one)]).max(initial=0.0), 1e-30)
    return bool(np.allclose(one, other, rtol=0, atol=scale * _tolerance(dtype), equal_nan=True))


def _tolerance(dtype: tf.DType) -> float:
    return float(np.sqrt(np.finfo(dtype.as_numpy_dtype).eps)) if dtype.size > 2 else 0.06


def _wide(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind in "OSUb" or array.dtype.kind in "iu":
        return array
    return array.astype(np.float64)
