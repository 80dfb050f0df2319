"""Copies of Keras objects: in another process, on other devices, with another dtype policy.

Keras copies an object by its ``get_config``, which many classes lack, and which leaves out what
somebody set later. A copy of this module has all attributes of the object, like a pickle of any
other Python object.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend
from keras.src.layers.preprocessing.index_lookup import get_null_initializer
from keras.src.ops.function import Function, map_graph
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.utils import tracking
from keras.src.utils.backend_utils import DynamicBackend

SESSION = "_stagecraft_session"
"""Attribute of a model that :func:`~stagecraft.parallelize` has had."""

_FUNCTIONS = ("train_function", "test_function", "predict_function")
"""Attributes of a model that Keras makes again: compiled functions."""

_TRACKED = frozenset(
    f"_self_{name}"
    for name in (
        "setattr_tracking",
        "unconditional_checkpoint_dependencies",
        "unconditional_dependency_names",
        "unconditional_deferred_dependencies",
        "update_uid",
        "name_based_restores",
        "saveable_object_factories",
    )
)
"""Names of attributes that TensorFlow adds to each object that it tracks
(tensorflow/python/trackable/base.py)."""

_COLLECTIONS: Mapping[type, type] = {
    tracking.TrackedList: list,
    tracking.TrackedDict: dict,
    tracking.TrackedSet: set,
}


class Policies(NamedTuple):
    """Dtype policies that a copy has in place of those of the original."""

    before: str
    after: str

    def policy(self, name: str) -> str:
        """In place of a policy."""
        return self.after if name == self.before else name

    def variable(self, dtype: str) -> str:
        """In place of the dtype of a variable."""
        before, after = (keras.DTypePolicy(each).variable_dtype for each in self)
        return after if dtype == before else dtype

    def tensor(self, dtype: str) -> str:
        """In place of the dtype of a symbolic tensor."""
        names = {each: keras.DTypePolicy(each) for each in self}
        of = {names[self.before].compute_dtype: names[self.after].compute_dtype}
        return of.get(dtype, dtype)


_policies: ContextVar[Policies | None] = ContextVar("policies", default=None)

_last: ContextVar[list[Callable[[], None]] | None] = ContextVar("last", default=None)
"""Functions to call when all objects of a pickle are made."""


def loads(data: bytes, policies: Policies | None = None) -> Any:
    """The object of a pickle, on the current devices; ``policies``: that it has from now on."""
    tokens = _policies.set(policies), _last.set([])
    unpickler = _Unpickler(io.BytesIO(data))
    try:
        made = unpickler.load()
        for operation in unpickler.met:  # grows meanwhile
            _update(operation, unpickler.load())
        for repair in _last.get() or []:
            repair()
        return made
    finally:
        _policies.reset(tokens[0])
        _last.reset(tokens[1])


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO):
        super().__init__(stream)
        self.met: list[Any] = []

    def persistent_load(self, pid: Any) -> Any:
        number, kind = pid
        if number == len(self.met):
            self.met.append(object.__new__(kind))
        return self.met[number]


def reduced(value: Any) -> Any:
    """How to make an object again, as ``__reduce__`` says it; NotImplemented: as any other one."""
    kind = type(value)
    if kind in _COLLECTIONS:
        items = _COLLECTIONS[kind](value)
        return _new_collection, (kind,), (vars(value), items), None, None, _fill
    for wanted, reduce in _REDUCED.items():
        if isinstance(value, wanted):
            return reduce(value)
    return NotImplemented


def _of_variable(value: Any) -> Any:
    state = attributes(value)
    state["_value"] = None if value._value is None else _array(value._value)
    return _variable, (type(value), state)


def _variable(kind: type, state: dict[str, Any]) -> Any:
    variable: Any = object.__new__(kind)
    value, policies = state["_value"], _policies.get()
    vars(variable).update(state | {"_value": None})
    if policies is not None:
        variable._dtype = policies.variable(state["_dtype"])
    if value is not None:
        variable._initialize(tf.constant(value, variable._dtype))
    return variable


def _of_object(value: Any) -> Any:
    return _new, (type(value),), attributes(value), None, None, _update


def _update(value: Any, state: dict[str, Any]) -> None:
    vars(value).update(state)
    for kind, repair in _REPAIRED.items():
        if isinstance(value, kind):
            _at_last(functools.partial(repair, value))


def _at_last(repair: Callable[[], None]) -> None:
    waiting = _last.get()
    if waiting is None:  # another one loads the pickle
        repair()
    else:
        waiting.append(repair)


def _know_nodes(function: Any) -> None:
    function._nodes = map_graph(function._inputs, function._outputs)[0]


def _know_stored(tracker: Any) -> None:
    tracker.stored_ids = {name: set(map(id, own)) for name, (_, own) in tracker.config.items()}


def _of_table(table: Any) -> Any:
    """Tables are resources of TensorFlow; a copy is a new one with the same content."""
    kind, default = type(table), table._default_value
    if type(getattr(table, "_initializer", None)).__name__ == "NullInitializer":
        return _empty_table, (kind, table.key_dtype.name, table.value_dtype.name, default)
    arrays = tuple(_array(each) for each in table.export())
    names = table.key_dtype.name, table.value_dtype.name
    return _table, (kind, names, _array(default), *arrays)


def _empty_table(kind: type, key: str, value: str, default: Any) -> Any:
    """The table of a lookup that has not adapted."""
    return kind(get_null_initializer(tf.as_dtype(key), tf.as_dtype(value)), default)


def _table(
    kind: type, names: tuple[str, str], default: Any, keys: np.ndarray, values: np.ndarray
) -> Any:
    given = tf.constant(keys, names[0]), tf.constant(values, names[1])
    if kind is tf.lookup.StaticHashTable:
        return kind(tf.lookup.KeyValueTensorInitializer(*given), default)
    made = kind(*names, default)
    made.insert(*given)
    return made


def _of_symbol(value: Any) -> Any:
    return _new, (type(value),), dict(vars(value)), None, None, _update_symbol


def _update_symbol(value: Any, state: dict[str, Any]) -> None:
    vars(value).update(state)
    policies = _policies.get()
    if policies is not None:
        value._dtype = policies.tensor(state["_dtype"])


def _of_policy(value: Any) -> Any:
    return _policy, (type(value), value.get_config())


def _policy(kind: Any, config: dict[str, Any]) -> Any:
    policies = _policies.get()
    if policies is not None and kind is keras.DTypePolicy:
        config = config | {"name": policies.policy(config["name"])}
    return kind.from_config(config)


def _of_tensor(value: Any) -> Any:
    if not hasattr(value, "numpy"):
        return NotImplemented
    return _tensor, (_array(value), value.dtype.name)


def _tensor(value: np.ndarray, dtype: str) -> tf.Tensor:
    policies = _policies.get()
    return tf.constant(value, dtype if policies is None else policies.tensor(dtype))


def _of_strategy(value: Any) -> Any:
    """An optimizer keeps the strategy that it was made in."""
    return tf.distribute.get_strategy, ()


def _of_backend(value: Any) -> Any:
    """It has all attributes of a module."""
    return type(value), (value._backend,)


_REDUCED: Mapping[type, Callable[[Any], Any]] = {
    keras.Variable: _of_variable,
    tracking.Tracker: _of_object,
    DynamicBackend: _of_backend,
    tf.lookup.StaticHashTable: _of_table,
    tf.lookup.experimental.MutableHashTable: _of_table,
    KerasSaveable: _of_object,
    keras.losses.Loss: _of_object,
    keras.KerasTensor: _of_symbol,
    keras.DTypePolicy: _of_policy,
    tf.Tensor: _of_tensor,
    tf.distribute.Strategy: _of_strategy,
}


_REPAIRED: Mapping[type, Callable[[Any], None]] = {
    Function: _know_nodes,
    tracking.Tracker: _know_stored,
    keras.optimizers.Optimizer: lambda optimizer: forget(optimizer),
}
"""Kinds of objects that know others by their ``id`` -> a function that repairs a copy."""


def _new(kind: type) -> Any:
    return object.__new__(kind)


def _new_collection(kind: Any) -> Any:
    return kind.__new__(kind)


def _fill(collection: Any, state: Any) -> None:
    attributes, items = state
    vars(collection).update(attributes)
    base: Any = _COLLECTIONS[type(collection)]
    (base.extend if base is list else base.update)(collection, items)


def attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object of Keras, without what TensorFlow tracks and what Keras compiles."""
    state = {name: own for name, own in vars(value).items() if name not in _TRACKED}
    session = state.get(SESSION)
    if session is not None:
        state = session.without(state)
    return state | {name: None for name in _FUNCTIONS if name in state}


def _array(value: Any) -> np.ndarray:
    return np.asarray(tf.convert_to_tensor(value).numpy())


def forget(optimizer: Any) -> None:
    """Tells a built optimizer the variables of its model, which have new identities."""
    while optimizer is not None:
        known = getattr(optimizer, "_trainable_variables", None) or ()
        with backend.AutocastScope(None):  # else the value of a variable would be a cast
            optimizer._trainable_variables_indices = {
                optimizer._var_key(variable): place for place, variable in enumerate(known)
            }
        optimizer = getattr(optimizer, "inner_optimizer", None)


def become(value: Any, copy: Any) -> None:
    """Gives an object all attributes of a copy of it."""
    vars(value).clear()
    vars(value).update(vars(copy))
