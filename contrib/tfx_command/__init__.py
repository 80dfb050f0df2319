"""The ``tfx`` command's engine for open-source Kubeflow Pipelines 2.x, which TFX lacks."""

from __future__ import annotations

import click


def engine() -> str | None:
    """The ``--engine`` of the running ``tfx`` command; None: no such command runs."""
    running = click.get_current_context(silent=True)
    if running is None:
        return None
    from tfx.tools.cli import labels
    from tfx.tools.cli.cli_context import Context

    command = running.find_object(Context)
    return command.flags_dict.get(labels.ENGINE_FLAG) if command is not None else None
