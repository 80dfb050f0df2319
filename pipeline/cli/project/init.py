"""``stagecraft init``."""

from __future__ import annotations

import pathlib

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

DEFAULT = "cifar10"


@click.command(cls=Command, short_help="Write a project of your own, from a template.")
@click.argument("folder", metavar="DIR", callback=options.not_empty)
@click.option(
    "--template",
    "-t",
    default=DEFAULT,
    show_default=True,
    metavar="NAME",
    help="The template: cifar10, empty, language_model or taxi.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="The name of the pipeline: lower-case letters, digits and '-'. Default: the name of DIR.",
)
def init(folder: str, template: str, name: str | None) -> None:
    """Write a project of your own into DIR, a new or empty folder.

    The project has the layout of TFX's templates: pipeline/, models/, local_runner.py and
    kubeflow_v2_runner.py. It also has settings.yaml, tests and a Makefile. All files are yours to
    edit. The project runs at once, without network, on sample data:

    \b
    cifar10          a convolutional network for pictures; CIFAR-10 or your pictures
    taxi             a wide and deep model for a table, with the data of TFX's template
    language_model   a transformer that continues text
    empty            a small model for your own CSV files

    \b
    stagecraft init shapes
    cd shapes
    make run

    stagecraft tfx template copy writes the same projects. Exit code: 0; 1 if DIR is not empty or
    cannot be written, or a name is wrong.
    """
    from stagecraft.pipeline.cli.project import writing

    written = writing.write(pathlib.Path(folder), template, name)
    console.fields(
        [
            ("project", folder),
            ("template", template),
            ("pipeline", written),
            ("next", f"cd {folder}"),
            ("", "make run"),
        ]
    )
