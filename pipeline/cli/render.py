"""``stagecraft render``."""

from __future__ import annotations

import sys

import click

from stagecraft.components.kubernetes.jobs.registry import CLUSTER_JOBS
from stagecraft.pipeline.cli.options import settings_options
from stagecraft.pipeline.cli.quiet import quiet


@click.command(short_help="Print a training's Kubernetes objects, or Vertex AI's pools, as YAML.")
@settings_options
@click.option(
    "--launcher",
    type=click.Choice([*CLUSTER_JOBS.names(), "vertex"]),
    help="An Indexed Job with its Service, a TFJob, a TrainJob, or the worker pools of Vertex AI. "
    "Default: kubeflow.job.kind.",
)
@click.option("--name", help="The job's name. Default: the setting name.")
@click.option(
    "--namespace", default="kubeflow", show_default=True, help="The namespace of the objects."
)
@click.option("--image", help="The image of all pods. Default: the Trainer's, or kubeflow.image.")
@click.option(
    "--machine-type",
    "machines",
    multiple=True,
    metavar="[KIND=]TYPE",
    help="With vertex: n1-standard-8 for all, ps=n1-highmem-4 for those of a kind (chief, worker, "
    "ps, evaluator). May be repeated.",
)
def render(
    config: str,
    overrides: tuple[str, ...],
    launcher: str | None,
    name: str | None,
    namespace: str,
    image: str | None,
    machines: tuple[str, ...],
) -> None:
    """Print a training's Kubernetes objects, or Vertex AI's pools, as YAML.

    One process in a pod for each that the topology has (see parallel), and what the Trainer's step
    would get in each: for those who apply objects by themselves. The processes look into
    kubeflow.job.folder/NAME, on a volume or in an object store, for task.json, {"run_fn": …,
    "fn_args": …} (see stagecraft.trainer_module.worker), and for lease.json, {"until": …}, seconds
    since 1970 until which they may go on. A Trainer's step writes both by itself.

    \b
    stagecraft render --launcher tfjob --config my.yaml --name training-1 > training-1.yaml
    kubectl apply -f training-1.yaml

    With vertex, prints the job_spec for TFX's own Trainer on Vertex AI, in its custom_config below
    ai_platform_training_args. That Trainer writes the containers' commands itself.

    \b
    stagecraft render --launcher vertex --config my.yaml --machine-type n1-standard-8

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
        machines=machines,
    )
    sys.exit(show(request))
