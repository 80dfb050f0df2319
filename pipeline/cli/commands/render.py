"""``stagecraft render``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import yaml

from stagecraft.common.errors import UserError
from stagecraft.components.kubernetes.jobs.settings import CLUSTER_JOBS
from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.components.kubernetes.jobs.request import JobRequest
    from stagecraft.pipeline.settings import PipelineSettings


@click.command(
    cls=Command,
    short_help="Print the Kubernetes objects or Vertex AI worker pools of a training run.",
)
@options.settings_options
@click.option(
    "--launcher",
    type=click.Choice([*CLUSTER_JOBS.names(), "vertex"]),
    help="An Indexed Job with its Service, a TFJob, a TrainJob, or the worker pools of Vertex AI. "
    "Default: kubeflow.job.kind.",
)
@click.option("--name", help="The name of the job. Default: the name of the pipeline.")
@click.option(
    "--namespace", default="kubeflow", show_default=True, help="The namespace of the objects."
)
@click.option(
    "--image",
    help="The container image of all pods. Default: the image of the Trainer step, or "
    "kubeflow.image.",
)
@click.option(
    "--machine-type",
    "machines",
    multiple=True,
    metavar="[KIND=]TYPE",
    help="With vertex: the machine type of all processes (n1-standard-8) or of one kind "
    "(ps=n1-highmem-4). Kinds: chief, worker, ps, evaluator. Repeatable.",
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
    """Print the Kubernetes objects or Vertex AI worker pools of a training run, as YAML.

    Each process of the topology (the parallel section of the settings) gets a pod, with the
    resources of the Trainer step. Use this command if you apply the objects yourself. With
    parallel.launcher: kubernetes, the Trainer creates them. The processes read two files from
    kubeflow.job.folder/NAME, on a volume or in an object store. The file task.json holds
    the training run (see stagecraft.trainer_module.processes.training_task). The file lease.json
    holds {"until": …}: the time at which the processes exit, in seconds since 1970. On Kubeflow,
    the Trainer step writes both files. If you apply the objects yourself, write the files first.

    \b
    stagecraft render --launcher tfjob --config my.yaml --name training-1 > training-1.yaml
    kubectl apply -f training-1.yaml

    With vertex, the output is the job_spec for the TFX Trainer on Vertex AI. Put it into the
    custom_config of that Trainer, below ai_platform_training_args. That Trainer writes the commands
    of the containers.

    \b
    stagecraft render --launcher vertex --config my.yaml --machine-type n1-standard-8

    Exit code: 0; 1 if the objects cannot be rendered.
    """
    from stagecraft.components.kubernetes.job_folder import exchange
    from stagecraft.pipeline.kubeflow import visible_secrets

    settings = options.load_settings(config, overrides)
    objects: list[dict[str, Any]]
    if launcher == "vertex":
        from stagecraft.contrib.vertex.worker_pools import worker_pool_specs

        by_kind = dict(each.rpartition("=")[::2] for each in machines)
        objects = [{"worker_pool_specs": worker_pool_specs(settings, by_kind, image)}]
    elif machines:
        raise UserError(
            f"--machine-type {machines[0]}: needs --launcher vertex; for a Kubernetes job, set "
            "kubeflow.steps.Trainer.cpu, memory, gpus and node_selector.",
            setting="--machine-type",
            value=machines[0],
            suggestion="--launcher vertex",
        )
    else:
        name = name or settings.name
        folder = settings.kubeflow.job.folder.rstrip("/")
        volumes = settings.kubeflow.step("Trainer").volumes
        exchange.check(folder, volumes, "kubeflow.job.folder")
        request = job_request(
            settings,
            name=name,
            namespace=namespace,
            folder=f"{folder}/{name}",
            image=image,
            kind=launcher,
        )
        objects = CLUSTER_JOBS.get(request.job.kind).render(request)
    if warning := visible_secrets.warning(settings, "the manifest"):
        console.warning(warning)
    console.document(yaml.safe_dump_all(objects, sort_keys=False).rstrip())


def job_request(
    settings: PipelineSettings,
    *,
    name: str,
    namespace: str,
    folder: str,
    image: str | None = None,
    kind: str | None = None,
) -> JobRequest:
    """A training as a job of a cluster.

    Args:
        image: of all pods; default: the Trainer's, or ``kubeflow.image``.
        kind: of the job; default: ``kubeflow.job.kind``.
    """
    from stagecraft.components.kubernetes.jobs.request import JobRequest
    from stagecraft.components.kubernetes.jobs.settings import ClusterSettings
    from stagecraft.pipeline.settings.kubeflow import stores

    kubeflow = settings.kubeflow
    # As ``compile`` does.
    trainer = kubeflow.step("Trainer").with_store_keys(
        stores((kubeflow.job.folder, kubeflow.checkpoints))
    )
    cluster = ClusterSettings(
        image=kubeflow.image,
        pod=trainer.model_copy(update={"image": image} if image else {}),
        job=kubeflow.job.model_copy(update={"kind": kind} if kind else {}),
    )
    return JobRequest.of_training(
        settings.parallel, cluster, name=name, namespace=namespace, folder=folder
    )
