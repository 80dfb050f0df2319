"""``stagecraft compile``."""

from __future__ import annotations

import pathlib
import sys

import click

from stagecraft.pipeline.cli.options import data_option, settings_options
from stagecraft.pipeline.cli.quiet import quiet


@click.command(name="compile", short_help="Compile the pipeline for Kubeflow Pipelines.")
@settings_options
@data_option
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="The YAML file that is written. Default: NAME.yaml, after the setting name.",
)
def compile_command(
    config: str, overrides: tuple[str, ...], data: str | None, output: pathlib.Path | None
) -> None:
    """Compile the pipeline for open-source Kubeflow Pipelines 2.x.

    What is written passes the backend's own rules (see stagecraft lint); upload it in the
    Kubeflow Pipelines UI, or try it here first with stagecraft emulate. Steps, resources and
    volumes are settings below kubeflow: see stagecraft config --describe.

    \b
    stagecraft compile --config cifar10 --data s3://bucket/cifar-10-binary.tar.gz \\
        --set kubeflow.image=registry/stagecraft@sha256:… \\
        --set kubeflow.pipeline_root=s3://bucket/pipelines
    stagecraft compile --set kubeflow.steps.Trainer.gpus=2

    A run can change epochs, steps, learning rate, batch size, seed, the data's address (unless
    compiled for the sample) and the topology's strategy, replicas, stages and microbatches. The
    rules were ported from the backend's code; no live cluster was asked. Exit code: 0; 1 when it
    cannot be.
    """
    quiet()
    from stagecraft.pipeline.cli.compiling import Request, run  # --help needs none of it

    sys.exit(run(Request(config=config, overrides=overrides, data=data, output=output)))
