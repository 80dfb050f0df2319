"""Selects the engine of a ``tfx`` command.

TFX selects it in tfx/tools/cli/handler/handler_factory.py. Its engine ``kubeflow`` imports a module
that TFX 1.16 removed, and its ``auto`` means ``kubeflow`` wherever kfp is installed.
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
from stagecraft.pipeline.tfx_command.handler import KubeflowHandler, exit_on_error

_stock = handler_factory.create_handler

_RUNNER = re.compile(
    r"(?P<kubeflow>kubeflow(?:v2)?(?:dag)?(?:runner)?)"
    r"|(?P<local>local(?:dag)?runners?)|(?P<beam>beam(?:dag)?runner)|(?P<airflow>airflowdagrunner)"
)
"""Names of runners, and of modules with runners, without underscores and capitals."""


def register() -> None:
    """Replaces TFX's selection in this process."""
    handler_factory.create_handler = create_handler


def create_handler(flags: dict[str, Any]) -> BaseHandler:
    """The handler for a command's flags; replaces TFX's function of this name."""
    if flags[labels.ENGINE_FLAG] == "auto":
        with exit_on_error():
            flags[labels.ENGINE_FLAG] = detect(flags)
        click.echo(f"Detected {flags[labels.ENGINE_FLAG].capitalize()}.")
        click.echo("Use --engine flag if you intend to use a different orchestrator.")
    engine = flags[labels.ENGINE_FLAG]
    if engine == labels.KUBEFLOW_ENGINE:
        return KubeflowHandler(flags)
    # TFX first lists all packages with pip for two seconds; these two engines need no list.
    if engine == labels.LOCAL_ENGINE:
        from tfx.tools.cli.handler.local_handler import LocalHandler

        return LocalHandler(flags)
    if engine == labels.BEAM_ENGINE:
        from tfx.tools.cli.handler.beam_handler import BeamHandler

        return BeamHandler(flags)
    return _stock(flags)


def detect(flags: dict[str, Any]) -> str:
    """The engine that ``auto`` means; the first rule that applies:

    1. Kubeflow, if an endpoint is given;
    2. the engine whose runner the pipeline's file imports;
    3. the engine in which a pipeline of this name was created;
    4. Kubeflow, if an address is known; otherwise local.
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
    """Engines whose runners a file imports, by names of runners or modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):  # TFX reports it when it runs the file
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
    """TFX's folder of created pipelines: ``_get_handler_home`` in base_handler.py."""
    home = os.environ.get(f"{engine.upper()}_HOME")
    return pathlib.Path(home) if home else pathlib.Path.home() / "tfx" / engine
