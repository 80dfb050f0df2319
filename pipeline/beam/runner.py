"""The base of Beam runners: the value of ``beam.runner``. Imports no Beam."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stagecraft.common.registry import Entry, Registry

RUNNERS = Registry(
    "stagecraft.pipeline.beam.runner:Runner",
    "beam.runner",
    "stagecraft.pipeline.beam.runners",
    "stagecraft.beam_runners",
)

Given = Mapping[str, Any]
"""The options that ``beam.args`` sets, by Beam's name (``flink_master``)."""

PACKAGES = (
    *("sdk_container_image", "worker_harness_container_image"),
    *("setup_file", "requirements_file", "extra_packages"),
)
"""Options that give packages to workers. Without one of them, TFX builds a source distribution of
itself for every component (``make_beam_dependency_flags`` in tfx/utils/dependency_utils.py)."""


class Runner(Entry):
    """Base of the values of ``beam.runner``: a file in ``runners/``, or an entry point."""

    beam_name: str
    """Beam's runner: its name, or the dotted path of its class."""

    option_classes: tuple[str, ...] = ()
    """Beam's classes of options that only some runners read, this one among them."""

    options: Mapping[str, type] = MappingProxyType({})
    """Further options, which Beam has only in other languages, and their types."""

    def check(self, given: Given) -> None:
        """Refuses arguments that cannot work, or are too few.

        Raises:
            SettingError: the argument and what works.
        """

    def check_files(self, given: Given) -> None:
        """Refuses arguments that name files which this machine does not have.

        Raises:
            SettingError: the argument.
        """

    def image(self, given: Given) -> str:
        """Container image of the workers; empty: they need none."""
        return ""

    def arguments(self, given: Given) -> list[str]:
        """Pipeline arguments, besides those that are given."""
        added = [f"--runner={self.beam_name}"]
        if not any(given.get(name) for name in PACKAGES):
            added.append(f"--sdk_container_image={self.image(given) or 'unused'}")
        return added
