"""``stagecraft doctor``."""

from __future__ import annotations

import sys

import click

from stagecraft.pipeline.cli.options import settings_options

_OF_CLUSTER = ("config", "overrides", "namespace", "kube_context", "service_account")


@click.command(short_help="Say what this machine, or a cluster, can run, and how to mend the rest.")
@click.option("--cluster", is_flag=True, help="Ask a cluster instead, by kubectl's configuration.")
@settings_options
@click.option(
    "--namespace",
    default="kubeflow",
    show_default=True,
    help="Where the Trainer's step runs, and the job of its training.",
)
@click.option("--kube-context", help="Of kubectl's configuration. Default: the current one.")
@click.option(
    "--service-account",
    metavar="NAME",
    help="Whose permissions are asked about: pipeline-runner, or default-editor in a profile. "
    "Default: your own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.pass_context
def doctor(
    context: click.Context,
    cluster: bool,
    config: str,
    overrides: tuple[str, ...],
    namespace: str,
    kube_context: str | None,
    service_account: str | None,
    as_json: bool,
) -> None:
    """Say what this machine, or a cluster, can run, and how to mend the rest.

    Looks at the interpreter, the installed stack, pip, processors, memory, disk, the network and
    TensorFlow's devices (which takes a few seconds). Exit code 1 only if something is missing that
    every run needs.

    With --cluster, looks at what a training needs there with parallel.launcher: kubernetes:
    version, operator, permissions, quotas, volumes, image. It changes nothing. Exit code 1 if
    something is missing; what may not be looked at is a note.

    \b
    stagecraft doctor --cluster --config my.yaml --service-account pipeline-runner
    """
    from stagecraft.pipeline.cli import doctoring  # --help needs none of it

    if not cluster:
        for name in _OF_CLUSTER:
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                option = "set" if name == "overrides" else name.replace("_", "-")
                raise click.UsageError(f"--{option} goes with --cluster.")
        sys.exit(doctoring.look_here(as_json))
    request = doctoring.Request(
        config=config,
        overrides=overrides,
        namespace=namespace,
        context=kube_context,
        account=service_account,
        as_json=as_json,
    )
    sys.exit(doctoring.look_at_cluster(request))
