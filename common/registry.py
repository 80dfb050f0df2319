"""Entries of one kind, found by name: one file each, or an entry point of another package.

The name of a built-in entry is its file's name. Another package adds an entry with an entry point
(https://packaging.python.org/en/latest/specifications/entry-points/)::

    [project.entry-points."stagecraft.optimizers"]
    lion = "my_package.lion:LION"
"""

from __future__ import annotations

import abc
import functools
import importlib
import importlib.metadata
import pkgutil
from typing import Any

from stagecraft.common import user_objects
from stagecraft.common.errors import SettingError, UserError, nearest


class UnknownNameError(SettingError):
    """A name that no entry has."""


class EntryPointError(UserError):
    """An entry point of another package that gives no entry."""


class Entry(abc.ABC):
    """Base of what a registry holds."""

    name: str  # as settings give it: the name of the file, or of the entry point
    description: str  # a phrase for ``stagecraft config --describe``

    @property
    def code(self) -> tuple[str, ...]:
        """Modules whose code an entry runs; what they import counts as well."""
        return (type(self).__module__,)


class UserEntry(Entry):
    """Base of an entry that stands for an object of the user's, named ``package.module:name``."""

    def __init__(self, name: str):
        self.name = name

    @property
    def code(self) -> tuple[str, ...]:
        """The user's module counts."""
        return (*super().code, self.name)


class Registry:
    """The entries of one kind. Listing names imports none of them."""

    def __init__(self, kind: str, setting: str, package: str, group: str, more: str = ""):
        """Describes where entries are; imports nothing.

        Args:
            kind: class of the entries, as ``package.module:Class``.
            setting: the setting that names one, such as ``train.optimizer``.
            package: dotted name of the folder with a file per built-in entry. The file's attribute
                in capitals that is an instance of ``kind`` is the entry.
            group: entry points of other packages, such as ``stagecraft.optimizers``. A built-in
                entry comes before an entry point of its name.
            more: dotted name of a module for names without file or entry point. Its ``names()``
                lists some of them; its ``find(name)`` returns an entry, or None.
        """
        self.setting = setting
        self.group = group
        self._kind = kind
        self._package = package
        self._more = more
        self._loaded: dict[str, Any] = {}

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """Names of the built-in entries, which are the names of their files."""
        path = importlib.import_module(self._package).__path__
        return tuple(sorted(module.name for module in pkgutil.iter_modules(path)))

    @functools.cached_property
    def _added(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {point.name: point for point in importlib.metadata.entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Names of all entries, without the user's: built-in ones first, then entry points, then
        those of ``more``; each group in alphabetical order."""
        known = [*self.files, *sorted(self._added.keys() - set(self.files))]
        more = importlib.import_module(self._more).names() if self._more else []
        return [*known, *(name for name in more if name not in known)]

    def entries(self) -> list[Any]:
        """All entries, in the order of :meth:`names`; imports them."""
        return [self.get(name) for name in self.names()]

    def built_in(self) -> list[Any]:
        """The entries of this package."""
        return [self.get(name) for name in self.files]

    def refresh(self) -> None:
        """Forgets what entry points there were, as after an installation into a running Python."""
        self.__dict__.pop("_added", None)
        self._loaded.clear()

    def get(self, name: str) -> Any:
        """The entry of a name; imports it."""
        if name not in self._loaded:
            self._loaded[name] = self._find(name)
        return self._loaded[name]

    def known(self, name: str) -> str:
        """The name itself, if there is such an entry; a validator of settings."""
        self.get(name)
        return name

    def imported(self, path: str) -> Any:
        """A user's entry, ``package.module:name``; imports the module.

        Raises:
            SettingError: there is none, or it is of another type.
        """
        if not user_objects.is_name(path):
            use = "the form package.module:name"
            raise SettingError(self.setting, path, "does not have the right form", use)
        kind, entry = pkgutil.resolve_name(self._kind), user_objects.load(self.setting, path)
        if not isinstance(entry, kind):
            problem = f"is of type {type(entry).__name__}, not {kind.__name__}"
            raise SettingError(self.setting, path, problem, f"an instance of {kind.__name__}")
        return entry

    def _find(self, name: str) -> Any:
        if name in self.files:
            module = importlib.import_module(f"{self._package}.{name}")
            kind = pkgutil.resolve_name(self._kind)
            values = [value for key, value in vars(module).items() if key.isupper()]
            [entry] = [value for value in values if isinstance(value, kind)]
            return entry
        if name in self._added:
            return self._load(self._added[name])
        if self._more and (found := importlib.import_module(self._more).find(name)):
            return found
        names = self.names()
        raise UnknownNameError(self.setting, name, "does not exist", nearest(name, names))

    def _load(self, point: importlib.metadata.EntryPoint) -> Any:
        try:
            entry = point.load()
        except Exception as error:  # whatever the package raises
            problem = f"cannot be imported: {type(error).__name__}: {error}"
            raise self._error(point, problem) from error
        kind = pkgutil.resolve_name(self._kind)
        if not isinstance(entry, kind):
            raise self._error(point, f"is of type {type(entry).__name__}, not {kind.__name__}")
        if entry.name != point.name:
            raise self._error(
                point, f"returns an entry with the name {entry.name!r}; use the same name for both"
            )
        return entry

    def _error(self, point: importlib.metadata.EntryPoint, problem: str) -> EntryPointError:
        return EntryPointError(
            f"{self.setting}: {point.name}: the entry point {point.name} of {self.group} "
            f"({point.value}) {problem}",
            setting=self.setting,
            value=point.name,
        )
