"""Pickles of the caller's objects, for other processes, and digests of their content.

A function that moves within its file keeps its digest.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import sys
import types
from typing import Any

import cloudpickle

_serial = itertools.count()


class Pickler(cloudpickle.CloudPickler):
    """cloudpickle, with :mod:`~stagecraft.copies` of Keras's objects; :func:`dumps` needs it.

    A graph of layers would be as deep as the model. So a layer is a number wherever the pickle
    meets it, and the attributes of all layers follow, one layer after the other.
    """

    def __init__(self, stream: io.BytesIO):
        super().__init__(stream)
        self.met: list[Any] = []
        """Layers and other operations of Keras, in the order in which the pickle meets them."""
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> Any:
        """See :meth:`pickle.Pickler.persistent_id`."""
        keras = sys.modules.get("keras")  # its import takes seconds
        if keras is None or not isinstance(value, keras.Operation):
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.met)
            self.met.append(value)
        return self._numbers[id(value)], type(value)

    def reducer_override(self, value: Any) -> Any:
        """See :meth:`pickle.Pickler.reducer_override`."""
        if "keras" in sys.modules:
            from stagecraft import copies

            reduced = copies.reduced(value)
            if reduced is not NotImplemented:
                return reduced
        return super().reducer_override(value)


def is_loss(value: Any) -> bool:
    """Whether an object is a loss of Keras; imports no Keras, which takes seconds."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.losses.Loss)


def dumps(value: Any, pickler: type[Pickler] = Pickler) -> bytes:
    """The pickle of an object.

    Raises:
        Exception: whatever the object's ``__reduce__`` raises.
    """
    stream = io.BytesIO()
    made = pickler(stream)
    made.dump(value)
    for operation in made.met:  # grows meanwhile
        from stagecraft import copies

        made.dump(copies.attributes(operation))
    return stream.getvalue()


def loads(data: bytes) -> Any:
    """The object of a pickle that :func:`dumps` made."""
    from stagecraft import copies

    return copies.loads(data)


def digest(value: Any, otherwise: str | None = None) -> str:
    """Hexadecimal SHA-256, equal for equal objects; also in other processes and notebook kernels.

    An object with a ``get_config`` has the digest of its configuration: the weights of a model do
    not count. The configuration of a loss may lack arguments, so all its attributes count.

    Args:
        otherwise: text for the digest of an object that cannot be serialized; None: such an object
            has a digest of its own.
    """
    try:
        found = _content(value)
    except Exception:  # whatever an object's __reduce__ raises
        found = (otherwise or str(next(_serial))).encode()
    return hashlib.sha256(found).hexdigest()


def _content(value: Any) -> bytes:
    if callable(getattr(value, "get_config", None)) and not is_loss(value):
        config = json.dumps(value.get_config(), sort_keys=True, default=repr)
        return f"{type(value).__qualname__} {config}".encode()
    return dumps(value, _WithoutPlaces)


def _without_place(code: types.CodeType) -> tuple[Any, ...]:
    """Code without its file and line, which differ between kernels of a notebook.

    The order of a set's elements differs between processes.
    """
    constants = tuple(
        sorted(map(repr, each)) if isinstance(each, frozenset) else each for each in code.co_consts
    )
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars)
    return tuple, ((names, code.co_flags, code.co_code, constants),)


class _WithoutPlaces(Pickler):
    dispatch_table = Pickler.dispatch_table.new_child({types.CodeType: _without_place})
