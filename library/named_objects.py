"""Objects of the caller's, under names that settings hold: ``your_model:1f3a…``.

Settings name tasks, models, losses and so on as ``package.module:name``. An object of a notebook or
a script has no such name, so :mod:`stagecraft.common.user_objects` keeps it. Its name is a digest
of the object's content: a script that runs again finds the checkpoints of its last run. The
processes of a topology get the objects by :func:`pack`.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any

import cloudpickle

from stagecraft import pickles
from stagecraft.common import user_objects
from stagecraft.common.errors import UserError, said


class UnpicklableError(UserError):
    """An object that other processes need, and that cannot be sent to them."""


def put(role: str, value: Any) -> str:
    """Gives an object a name. Equal objects get equal names."""
    return user_objects.keep(role, pickles.digest(value)[:12], value)


def pack(names: Collection[str]) -> bytes:
    """The objects of some names, for :func:`unpack` in another process.

    Raises:
        UnpicklableError: one of them cannot be serialized.
    """
    packed = {}
    with by_value():
        for name in names:
            try:
                packed[name] = pickles.dumps(user_objects.load("", name))
            except Exception as error:  # whatever an object's __reduce__ raises
                role = user_objects.role(name)
                raise UnpicklableError(
                    f"{role}: cannot be sent to the other processes of the topology: "
                    f"{said(error)}; define it in a module and name it as package.module:name",
                    setting=role,
                ) from error
    return pickles.dumps(packed)


@contextlib.contextmanager
def by_value() -> Iterator[None]:
    """Sends what modules define that another process cannot import: those of a file by its path."""
    already = cloudpickle.list_registry_pickle_by_value()
    sent = [
        module
        for name, module in [*sys.modules.items()]
        if name not in already and _is_hidden(name, module)
    ]
    for module in sent:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in sent:
            cloudpickle.unregister_pickle_by_value(module)


def _is_hidden(name: str, module: types.ModuleType) -> bool:
    """Whether a module comes from a file that ``import`` with this ``sys.path`` does not find."""
    file = getattr(module, "__file__", None)
    if not file or name == "__main__" or file.startswith((sys.prefix, sys.base_prefix)):
        return False
    if name.partition(".")[0] == "stagecraft":
        return False
    path: Any = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return True
        path = spec.submodule_search_locations
    return False


def unpack(packed: bytes) -> None:
    """Gives the objects of :func:`pack` their names in this process."""
    for name, value in pickles.loads(packed).items():
        role, digest = user_objects.role(name), name.partition(":")[2]
        user_objects.keep(role, digest, pickles.loads(value))
