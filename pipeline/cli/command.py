"""The class of all commands: an error is one sentence, and the result is the exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from stagecraft.common.errors import UserError
from stagecraft.pipeline.cli.quiet import hide_warnings
from stagecraft.pipeline.cli.terminal import console

Fields = dict[str, Any]


class Command(click.Command):
    """A command that returns its exit code and raises UserErrors; None means 0.

    A UserError is printed as one sentence, and the exit code is 1. With ``--json``, the command
    also prints its JSON object, with the sentence as ``error``.
    """

    def __init__(
        self,
        *args: Any,
        quiet: bool = True,
        failure: Callable[[Fields], Fields] = lambda params: {},
        **kwargs: Any,
    ) -> None:
        """Makes the command.

        Args:
            quiet: hides warnings of TensorFlow and other libraries. Not for a command whose
                processes write logs: they inherit it.
            failure: takes the command's parameters; returns the fields that its JSON object has
                next to ``error``.
        """
        super().__init__(*args, **kwargs)
        self._quiet, self._failure = quiet, failure

    def invoke(self, ctx: click.Context) -> None:
        """Runs the command and exits with its code."""
        if self._quiet:
            hide_warnings()
        try:
            code = super().invoke(ctx)
        except UserError as error:
            if ctx.params.get("as_json"):
                console.say_json({**self._failure(ctx.params), "error": str(error)})
            console.error(str(error))
            code = 1
        ctx.exit(code or 0)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
