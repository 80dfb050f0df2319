"""``stagecraft render``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import settings_options
from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Print a training's Kubernetes objects as YAML.")
@settings_options
@click.option(
    "--launcher",
    type=click.Choice(["job", "tfjob", "trainjob"]),
    help="An Indexed Job with its Service, a TFJob or a TrainJob. Default: kubeflow.job.kind.",
)
@click.option("--name", help="The job's name. Default: the setting name.")
@click.option(
    "--namespace", default="kubeflow", show_default=True, help="The namespace of the objects."
)
@click.option("--image", help="The image of all pods. Default: the Trainer's, or kubeflow.image.")
def render(
    config: str,
    overrides: tuple[str, ...],
    launcher: str | None,
    name: str | None,
    namespace: str,
    image: str | None,
) -> None:
    """Print a training's Kubernetes objects as YAML.

    One process in a pod for each that the topology has (see parallel), and what the Trainer's step
    would get in each: for those who apply objects by themselves. The processes look for what to
    train in kubeflow.job.folder/NAME.

    \b
    stagecraft render --launcher tfjob --config my.yaml --name training-1 > training-1.yaml
    kubectl apply -f training-1.yaml

    Exit code: 0; 1 when it cannot be.
    """
    quiet()
    from stagecraft.pipeline.cli.rendering import Request, show  # --help needs none of it

    request = Request(
        config=config,
        overrides=overrides,
        launcher=launcher,
        name=name,
        namespace=namespace,
        image=image,
    )
    sys.exit(show(request))
