"""Objects of the caller's, under names that settings hold: ``stagecraft_given:model_1f3a…``.

Settings name tasks, models, losses and so on as ``package.module:name``. An object of a notebook or
a script has no such name, so it gets one in a module that exists only in memory. The name is a
digest of the object's content: a script that runs again finds the checkpoints of its last run. The
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
from stagecraft.schemas.errors import UserError
from stagecraft.schemas.foreign_errors import said

MODULE = "stagecraft_given"


class UnpicklableError(UserError):
    """An object that other processes need, and that cannot be sent to them."""


def put(role: str, value: Any) -> str:
    """Gives an object a name, ``stagecraft_given:ROLE_DIGEST``.

    Equal objects get equal names. An object that cannot be serialized gets a name of its own.
    """
    name = f"{role}_{pickles.digest(value)[:12]}"
    setattr(_module(), name, value)
    return f"{MODULE}:{name}"


def get(name: str) -> Any:
    """The object of a name that :func:`put` returned."""
    return getattr(_module(), name.partition(":")[2])


def is_given(name: str) -> bool:
    """Whether :func:`put` returned this name."""
    return name.partition(":")[0] == MODULE


def release(names: Collection[str]) -> None:
    """Forgets objects; a name without an object is ignored."""
    for name in names:
        vars(_module()).pop(name.partition(":")[2], None)


def pack(names: Collection[str]) -> bytes:
    """The objects of some names, for :func:`unpack` in another process.

    Raises:
        UnpicklableError: one of them cannot be serialized.
    """
    packed = {}
    with by_value():
        for name in names:
            try:
                packed[name] = pickles.dumps(get(name))
            except Exception as error:  # whatever an object's __reduce__ raises
                role = name.partition(":")[2].rpartition("_")[0]
                raise UnpicklableError(
                    f"{role}: cannot be sent to the other processes of the topology: "
                    f"{said(error)}; define it in a module and name it as package.module:name",
                    setting=role,
                ) from error
    return pickles.dumps(packed)


@contextlib.contextmanager
def by_value() -> Iterator[None]:
    """Sends what modules define that another process cannot import: those of a file by its path."""
    sent = [module for name, module in [*sys.modules.items()] if _is_hidden(name, module)]
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
    if name.partition(".")[0] in (MODULE, "stagecraft") or name in _registered():
        return False
    path: Any = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return True
        path = spec.submodule_search_locations
    return False


def _registered() -> Collection[str]:
    return set(cloudpickle.list_registry_pickle_by_value())


def unpack(packed: bytes) -> None:
    """Gives the objects of :func:`pack` their names in this process."""
    for name, value in pickles.loads(packed).items():
        setattr(_module(), name.partition(":")[2], pickles.loads(value))


def _module() -> types.ModuleType:
    module = sys.modules.get(MODULE)
    if module is None:
        module = sys.modules[MODULE] = types.ModuleType(MODULE, "Objects of the caller's.")
        module.__file__ = "this process"  # messages name the file of an object
    return module
