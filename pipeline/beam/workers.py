"""Beam's workers in other processes: on other machines, they share object stores at most."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stagecraft.pipeline.beam.in_process import IN_PROCESS

_HERE = frozenset({"", IN_PROCESS, "DirectRunner", "BundleBasedDirectRunner", "FnApiRunner"})

_ADDED = (
    "--beam_plugin=stagecraft.components.object_store.beam_worker",
    # Otherwise, Beam stages the list of installed packages for each job. A job server can pass
    # files on only if all its workers see its folder.
    "--experiments=disable_logging_submission_environment",
)


def are_elsewhere(arguments: Sequence[str]) -> bool:
    """Whether Beam's pipeline arguments place the workers outside the process of the executor."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--runner", default="")
    parser.add_argument("--environment_type", default="")
    found, _ = parser.parse_known_args(list(arguments))
    return found.runner not in _HERE and found.environment_type != "LOOPBACK"


def run_executor(class_path: str, arguments: Sequence[str]) -> bool:
    """Whether workers elsewhere run the Beam pipelines of an executor; imports TFX.

    They have no access to local copies of its inputs and outputs.
    """
    if not are_elsewhere(arguments):
        return False
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.utils import import_utils

    return issubclass(import_utils.import_class_by_path(class_path), BaseBeamExecutor)


def complete(arguments: Sequence[str]) -> list[str]:
    """The arguments, and what workers elsewhere need: file systems for ``minio://`` and ``s3://``."""
    added = _ADDED if are_elsewhere(arguments) else ()
    return [*arguments, *(each for each in added if each not in arguments)]
