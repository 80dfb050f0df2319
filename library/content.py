"""Digests of the content of objects: a function that moves within its file keeps its digest."""

from __future__ import annotations

import hashlib
import itertools
import json
import types
from typing import Any

from stagecraft import pickles

_serial = itertools.count()


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
    if callable(getattr(value, "get_config", None)) and not pickles.is_loss(value):
        config = json.dumps(value.get_config(), sort_keys=True, default=repr)
        return f"{type(value).__qualname__} {config}".encode()
    return pickles.dumps(value, _Pickler)


def _without_place(code: types.CodeType) -> tuple[Any, ...]:
    """What counts of code: not its file and line, which differ between kernels of a notebook.

    The order of a set's elements differs between processes.
    """
    constants = tuple(
        sorted(map(repr, each)) if isinstance(each, frozenset) else each for each in code.co_consts
    )
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars)
    return tuple, ((names, code.co_flags, code.co_code, constants),)


class _Pickler(pickles.Pickler):
    dispatch_table = pickles.Pickler.dispatch_table.new_child({types.CodeType: _without_place})
