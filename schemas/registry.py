"""Things of one kind, found by name: one file each, or an entry point of another package.

The name of a built-in entry is its file's name. Another package adds an entry with an entry point
(https://packaging.python.org/en/latest/specifications/entry-points/)::

    [project.entry-points."stagecraft.optimizers"]
    lion = "my_package.lion:LION"
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import pkgutil
from typing import Generic, TypeVar

from stagecraft.schemas.errors import SettingError, UserError

T = TypeVar("T")


class UnknownNameError(SettingError):
    """A name that no entry has."""


class Registry(Generic[T]):
    """The entries of one kind. Listing names imports none of them."""

    def __init__(self, kind: type[T], setting: str, package: str, group: str):
        """Describes where entries are.

        Args:
            kind: class of the entries.
            setting: the setting that names one, such as ``train.optimizer``.
            package: dotted name of the folder with a file per built-in entry. The file's attribute
                is the entry: its only instance of ``kind`` whose name is in capitals.
            group: entry points of other packages, such as ``stagecraft.optimizers``.
        """
        self.kind = kind
        self.setting = setting
        self.package = package
        self.group = group

    @functools.cached_property
    def _built_in(self) -> tuple[str, ...]:
        path = importlib.import_module(self.package).__path__
        return tuple(sorted(module.name for module in pkgutil.iter_modules(path)))

    @functools.cached_property
    def _added(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {point.name: point for point in importlib.metadata.entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Names of all entries: built-in ones first, each group in alphabetical order."""
        return [*self._built_in, *sorted(self._added.keys() - set(self._built_in))]

    def get(self, name: str) -> T:
        """The entry of a name; imports it.

        Raises:
            UnknownNameError: no entry has the name.
            UserError: an entry point cannot be imported, or is something else.
        """
        if name in self._built_in:
            module = importlib.import_module(f"{self.package}.{name}")
            [entry] = {
                id(value): value
                for attribute, value in vars(module).items()
                if attribute.isupper() and isinstance(value, self.kind)
            }.values()
            return entry
        if name in self._added:
            return self._load(self._added[name])
        names = self.names()
        near = difflib.get_close_matches(name, names, n=1)
        raise UnknownNameError(
            self.setting, name, "does not exist", near[0] if near else ", ".join(names)
        )

    def _load(self, point: importlib.metadata.EntryPoint) -> T:
        where = f"entry point {point.name} of {self.group} ({point.value})"
        try:
            entry = point.load()
        except Exception as error:
            raise UserError(
                f"{self.setting}: {point.name}: {where} cannot be imported: "
                f"{type(error).__name__}: {error}",
                setting=self.setting,
                value=point.name,
            ) from error
        if not isinstance(entry, self.kind):
            raise UserError(
                f"{self.setting}: {point.name}: {where} is of type {type(entry).__name__}, not "
                f"{self.kind.__name__}",
                setting=self.setting,
                value=point.name,
            )
        return entry
