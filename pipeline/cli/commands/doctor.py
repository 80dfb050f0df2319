"""``stagecraft doctor``."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from stagecraft.pipeline.cli import options
from stagecraft.pipeline.cli.command import Command
from stagecraft.pipeline.cli.quiet import hide_warnings
from stagecraft.pipeline.cli.terminal import console

if TYPE_CHECKING:
    from stagecraft.components.kubernetes.api.reader import CheckResult
    from stagecraft.pipeline.checks.machine import Check
    from stagecraft.pipeline.settings import PipelineSettings

_NEEDS = {
    "config": ("cluster", "beam"),
    "overrides": ("cluster", "beam"),
    "output": ("beam",),
    "namespace": ("cluster",),
    "kube_context": ("cluster",),
    "service_account": ("cluster",),
}
"""Options of some checks only."""

_JOB = "preflight"


@click.command(
    cls=Command,
    quiet=False,
    failure=lambda params: {"ok": False},
    short_help="Check what this machine or a cluster can run, and suggest fixes.",
)
@click.option("--cluster", is_flag=True, help="Check the cluster of the kubectl configuration.")
@click.option("--beam", is_flag=True, help="Check the engine that runs the data steps.")
@options.settings_options
@click.option(
    "--output",
    metavar="DIR",
    help="With --beam: the pipeline root, a folder or an address such as minio://BUCKET/PATH. "
    "Default: runs/NAME, where NAME is the name of the pipeline.",
)
@click.option(
    "--namespace",
    default="kubeflow",
    show_default=True,
    help="The namespace of the Trainer step and of its training job.",
)
@click.option(
    "--kube-context", help="The context of the kubectl configuration. Default: the current context."
)
@click.option(
    "--service-account",
    metavar="NAME",
    help="Check the permissions of this service account: pipeline-runner, or default-editor in a "
    "profile. Default: your own account.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(
    context: click.Context,
    cluster: bool,
    beam: bool,
    config: str,
    overrides: tuple[str, ...],
    output: str | None,
    namespace: str,
    kube_context: str | None,
    service_account: str | None,
    as_json: bool,
) -> int:
    """Check what this machine or a cluster can run, and suggest fixes.

    The command checks Python, the installed stack, pip, processors, memory, disk, the network and
    the TensorFlow devices. This takes a few seconds. Exit code: 0; 1 if a requirement of every
    run is missing.

    With --cluster, the command checks the requirements of a cluster job
    (parallel.launcher=kubernetes): version, operator, permissions, quotas, volumes, image. It
    changes nothing. If your credentials do not permit a check, the command prints a note. Exit
    code: 0; 1 if something is missing.

    With --beam, the command checks the engine of beam.runner: the job server and Flink answer, a
    worker starts with the versions of this environment, and the worker reads and writes the
    pipeline root. This takes less than a minute. Exit code: 0; 1 if something is missing.

    \b
    stagecraft doctor --cluster --config my.yaml --service-account pipeline-runner
    stagecraft doctor --beam --config flink.yaml
    """
    _check_options(context, cluster=cluster, beam=beam)
    if not cluster and not beam:
        from stagecraft.pipeline.checks import machine

        checks = machine.all_checks(pathlib.Path.cwd())
        return _print(checks, as_json, "this machine has everything that a run needs")
    settings = options.load_settings(config, overrides)
    if beam:
        hide_warnings()
        from stagecraft.pipeline.checks import beam_engine

        root = output or f"runs/{settings.name}"
        root = root if "://" in root else str(pathlib.Path(root).absolute())
        of_beam = beam_engine.all_checks(settings.beam, root)
        return _print(of_beam, as_json, "the engine has everything that a data step needs")
    of_cluster = list(_cluster_checks(settings, namespace, kube_context, service_account))
    return _print(of_cluster, as_json, "the cluster has everything that a training run needs")


def _check_options(context: click.Context, **asked: bool) -> None:
    """Refuses two kinds of checks at once, and options of the other kinds."""
    if all(asked.values()):
        raise click.UsageError("--cluster and --beam are separate checks.")
    for name, kinds in _NEEDS.items():
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and not any(asked[kind] for kind in kinds):
            option = "set" if name == "overrides" else name.replace("_", "-")
            wanted = " or ".join(f"--{kind}" for kind in kinds)
            raise click.UsageError(f"--{option} needs {wanted}.")


def _cluster_checks(
    settings: PipelineSettings, namespace: str, kube_context: str | None, account: str | None
) -> Iterator[Check | CheckResult]:
    from stagecraft.components.kubernetes import preflight
    from stagecraft.components.kubernetes.api import connection
    from stagecraft.pipeline.checks import machine
    from stagecraft.pipeline.cli.commands.render import job_request
    from stagecraft.pipeline.settings.kubeflow import KubeflowSettings

    launcher = f"parallel.launcher: {settings.parallel.launcher}"
    if settings.parallel.launcher == "kubernetes":
        yield machine.Check("launcher", launcher)
    else:
        advice = "the Trainer starts jobs only with parallel.launcher=kubernetes"
        yield machine.Check("launcher", launcher, "note", advice)
    folder = settings.kubeflow.job.folder
    wanted = preflight.PlannedTraining(
        request=job_request(
            settings, name=_JOB, namespace=namespace, folder=f"{folder.rstrip('/')}/{_JOB}"
        ),
        folder=folder,
        checkpoints=settings.kubeflow.checkpoints,
        default_image=KubeflowSettings().image,
        account=account,
    )
    yield from preflight.check_cluster(connection.connect(kube_context), wanted)


def _print(checks: Iterable[Check | CheckResult], as_json: bool, all_ok: str) -> int:
    """Prints checks as they come; the exit code."""
    done = []
    for check in checks:
        done.append(check)
        if not as_json:
            console.say(f"{check.verdict:<8}{f'{check.name} ':<12}{check.found}")
            if check.advice:
                console.say(f"{'':<20}{check.advice}")
    ok = not any(check.verdict == "missing" for check in done)
    if as_json:
        console.say_json({"ok": ok, "checks": {check.name: vars(check) for check in done}})
    elif ok:
        console.say(all_ok)
    return 0 if ok else 1
