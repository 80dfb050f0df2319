"""``stagecraft tfx``."""

from __future__ import annotations

import os
import pathlib
import sys

import click

from stagecraft.pipeline.cli.quiet import quiet_imports


@click.command(
    short_help="Run TFX's tfx command, with a kubeflow engine that works.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def tfx(words: tuple[str, ...]) -> None:
    """Run TFX's own command: stagecraft tfx pipeline create …, stagecraft tfx run list …

    With --engine=kubeflow, the command works with open-source Kubeflow Pipelines 2.x. With
    --engine=auto, --endpoint selects kubeflow. Otherwise the runner in the pipeline file selects
    the engine. stagecraft tfx template copy also has the templates of stagecraft init; their
    names begin with stagecraft_. The command passes everything else on to TFX unchanged.
    """
    own = os.environ.copy()
    with quiet_imports():  # a run that the command starts has its own log
        from tfx.tools.cli.cli_main import cli_group

        from stagecraft.contrib.tfx_command import engines
        from stagecraft.pipeline.cli.project import tfx_templates
    # TFX runs pip by its name.
    scripts = str(pathlib.Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join(filter(None, [scripts, own.get("PATH")]))
    engines.register()
    tfx_templates.register()
    cli_group.main(args=list(words), prog_name="stagecraft tfx")
