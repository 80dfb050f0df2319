"""How a file that the ``tfx`` command runs knows what it is compiled for."""

from __future__ import annotations

import click


def asks_for_vertex() -> bool:
    """Whether a ``tfx`` command with ``--engine=vertex`` is running."""
    running = click.get_current_context(silent=True)
    if running is None:
        return False
    from tfx.tools.cli import labels
    from tfx.tools.cli.cli_context import Context

    command = running.find_object(Context)
    return command is not None and command.flags_dict.get(labels.ENGINE_FLAG) == "vertex"
