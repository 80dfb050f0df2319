"""PackagedCsvExampleGen: CsvExampleGen on a folder of an installed package."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from tfx.components.example_gen.driver import FileBasedDriver
from tfx.types.standard_component_specs import INPUT_BASE_KEY

from stagecraft.common.errors import SettingError
from stagecraft.components.example_gen.kinds.checked_csv import CsvExampleGen

PREFIX = "package:"


class Driver(FileBasedDriver):
    """Finds the folder on the machine of the step, where the package may be at another path."""

    def resolve_exec_properties(
        self, exec_properties: dict[str, Any], *info: Any, **more: Any
    ) -> dict[str, Any]:
        """See TFX's class."""
        exec_properties[INPUT_BASE_KEY] = folder(exec_properties[INPUT_BASE_KEY])
        result: dict[str, Any] = super().resolve_exec_properties(exec_properties, *info, **more)
        return result


class PackagedCsvExampleGen(CsvExampleGen):
    """CsvExampleGen; ``input_base`` may be ``package:NAME/FOLDER``, a folder in a package."""

    DRIVER_CLASS = Driver


def folder(input_base: str) -> str:
    """The folder of ``package:NAME/FOLDER``; another path as it is.

    Raises:
        SettingError: there is no such package, or it has no such folder.
    """
    if not input_base.startswith(PREFIX):
        return input_base
    package, _, inside = input_base.removeprefix(PREFIX).partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # no parent package, or no name at all
        spec = None
    for root in (spec.submodule_search_locations if spec else None) or ():
        path = os.path.join(root, inside)
        if os.path.isdir(path):
            return path
    raise SettingError("data.source", input_base, "is not a folder of an installed package")
