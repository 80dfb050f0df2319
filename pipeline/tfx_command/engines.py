"""Which engine a ``tfx`` command means, and the one that TFX has not.

TFX chooses in tfx/tools/cli/handler/handler_factory.py. Its engine ``kubeflow`` imports a module
that TFX 1.16 removed, and its ``auto`` is ``kubeflow`` wherever kfp is installed.
"""

from __future__ import annotations

import ast
import os
import pathlib
import re
import sys
from typing import Any

import click
from tfx.tools.cli import labels
from tfx.tools.cli.handler import handler_factory
from tfx.tools.cli.handler.base_handler import BaseHandler

from stagecraft.pipeline.kubeflow.client.connection import resolve
from stagecraft.pipeline.kubeflow.client.contexts import Context
from stagecraft.pipeline.tfx_command.handler import KubeflowHandler, told

_stock = handler_factory.create_handler

_RUNNER = re.compile(
    r"(?P<kubeflow>kubeflow(?:v2)?(?:dag)?(?:runner)?)"
    r"|(?P<local>local(?:dag)?runners?)|(?P<beam>beam(?:dag)?runner)|(?P<airflow>airflowdagrunner)"
)
"""Names of runners, and of modules with runners, without underscores and capitals."""


def register() -> None:
    """Puts our choice in the place of TFX's, in this process."""
    handler_factory.create_handler = create_handler


def create_handler(flags: dict[str, Any]) -> BaseHandler:
    """The handler for a command's flags; stands for the function of that name in TFX."""
    if flags[labels.ENGINE_FLAG] == "auto":
        with told():
            flags[labels.ENGINE_FLAG] = detect(flags)
        click.echo(f"Detected {flags[labels.ENGINE_FLAG].capitalize()}.")
        click.echo("Use --engine flag if you intend to use a different orchestrator.")
    engine = flags[labels.ENGINE_FLAG]
    if engine == labels.KUBEFLOW_ENGINE:
        return KubeflowHandler(flags)
    # TFX asks pip for all packages first, for two seconds, and needs none of them for these two.
    if engine == labels.LOCAL_ENGINE:
        from tfx.tools.cli.handler.local_handler import LocalHandler

        return LocalHandler(flags)
    if engine == labels.BEAM_ENGINE:
        from tfx.tools.cli.handler.beam_handler import BeamHandler

        return BeamHandler(flags)
    return _stock(flags)


def detect(flags: dict[str, Any]) -> str:
    """What ``auto`` means: Kubeflow, if an endpoint is given; else the runner that the pipeline's
    file imports; else where a pipeline of that name was created; else, Kubeflow if one is known.
    """
    if flags.get(labels.ENDPOINT):
        return labels.KUBEFLOW_ENGINE
    if dsl := flags.get(labels.PIPELINE_DSL_PATH):
        engines = imported_engines(pathlib.Path(dsl))
        if len(engines) == 1:
            return engines.pop()
        if engines:
            found = " and ".join(sorted(engines))
            sys.exit(f"{dsl} imports runners for {found}. Choose one using --engine flag.")
        return labels.LOCAL_ENGINE
    name = flags.get(labels.PIPELINE_NAME)
    for engine in (labels.LOCAL_ENGINE, labels.BEAM_ENGINE):
        if name and (_home(engine) / name).is_dir():
            return engine
    known = resolve({}).context != Context()
    return labels.KUBEFLOW_ENGINE if known else labels.LOCAL_ENGINE


def imported_engines(file: pathlib.Path) -> set[str]:
    """Whose runners a file imports, by their names or their modules'."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):  # TFX says it when it runs the file
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):  # tfx.orchestration.LocalDagRunner
            names.add(node.attr)
    words = {word for name in names for word in name.replace("_", "").lower().split(".")}
    return {str(match.lastgroup) for word in words if (match := _RUNNER.fullmatch(word))}


def _home(engine: str) -> pathlib.Path:
    """Where TFX keeps what was created: ``_get_handler_home`` in base_handler.py."""
    given = os.environ.get(f"{engine.upper()}_HOME")
    return pathlib.Path(given) if given else pathlib.Path.home() / "tfx" / engine
