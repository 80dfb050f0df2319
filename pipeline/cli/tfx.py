"""``stagecraft tfx``."""

from __future__ import annotations

import os
import pathlib
import sys

import click

from stagecraft.pipeline.cli.quiet import quiet


@click.command(
    short_help="The tfx command, with a kubeflow engine that works.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def tfx(words: tuple[str, ...]) -> None:
    """TFX's own command: stagecraft tfx pipeline create …, stagecraft tfx run list …

    Its engine kubeflow works with open-source Kubeflow Pipelines 2.x, and auto finds out which
    engine a file is for. Everything else is passed through as it is.
    """
    own = os.environ.copy()
    quiet()
    from tfx.tools.cli.cli_main import cli_group

    from stagecraft.pipeline.tfx_command import engines

    if "TF_CPP_MIN_LOG_LEVEL" not in own:  # a run that it starts has a log of its own
        os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
    # TFX runs pip by its name.
    here = str(pathlib.Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(filter(None, [here, own.get("PATH")]))
    engines.register()
    cli_group.main(args=list(words), prog_name="stagecraft tfx")
