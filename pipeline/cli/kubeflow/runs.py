"""``stagecraft kubeflow runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stagecraft.common.errors import UserError
from stagecraft.common.text import duration
from stagecraft.pipeline.cli.command import Group
from stagecraft.pipeline.cli.kubeflow.connection import connection_options, links, run_options
from stagecraft.pipeline.cli.options import name_values, not_empty, parameter_option
from stagecraft.pipeline.cli.terminal import console
from stagecraft.pipeline.cli.terminal.wording import day, optional_time

if TYPE_CHECKING:
    from stagecraft.pipeline.kubeflow.client.api import Api
    from stagecraft.pipeline.kubeflow.client.nodes import Progress
    from stagecraft.pipeline.kubeflow.client.objects import Run

_run_id = click.argument("run_id", metavar="RUN")


@click.group(cls=Group, short_help="Start, watch and stop runs, and read their logs.")
def runs() -> None:
    """Manage the runs of uploaded pipelines. RUN is the ID of a run."""


@runs.command(short_help="Start a run.")
@click.argument("pipeline")
@click.option(
    "--version",
    callback=not_empty,
    help="The version of the pipeline, by name or ID. Default: the newest.",
)
@parameter_option
@click.option(
    "--name",
    callback=not_empty,
    help="The name of the run. Default: the name of the version, with the time.",
)
@click.option(
    "--once",
    is_flag=True,
    help="If the experiment has a run of this --name and version that did not fail and was not "
    "stopped, do not start another.",
)
@run_options
@click.option("--watch", "watches", is_flag=True, help="Show the run until it ends.")
@connection_options
def create(
    api: Api,
    pipeline: str,
    version: str | None,
    parameters: tuple[str, ...],
    name: str | None,
    once: bool,
    experiment: str | None,
    pipeline_root: str | None,
    service_account: str | None,
    watches: bool,
    as_json: bool,
) -> int:
    """Start a run of PIPELINE (name or ID).

    \b
    stagecraft kubeflow runs create quickstart --watch
    stagecraft kubeflow runs create quickstart -p train_epochs=20 -p train_seed=1
    stagecraft kubeflow runs create quickstart --name nightly-2026-11-22 --once
    """
    from stagecraft.pipeline.kubeflow.client import pipelines, runs as of_server

    values = name_values(parameters)
    uploaded = pipelines.get(api, pipeline)
    run, is_new = of_server.create(
        api,
        uploaded,
        pipelines.version(api, uploaded, version),
        values,
        experiment=experiment,
        name=name,
        once=once,
        pipeline_root=pipeline_root,
        service_account=service_account,
    )
    if not as_json:
        hint = ("watch it", f"stagecraft kubeflow runs watch {run.id}")
        console.fields(
            [
                ("run", run.name + ("" if is_new else ", exists already")),
                ("ID", run.id),
                *links(api, f"runs/details/{run.id}"),
                *([] if watches else [hint]),
            ]
        )
    if watches:
        return _watch(api, run.id, as_json=as_json)
    if as_json:
        console.say_json({**_run(api, run), "changed": is_new})
    return 0


@runs.command("list", short_help="List runs, newest first.")
@click.option(
    "--experiment",
    callback=not_empty,
    help="List only runs of this experiment; by default, a run's experiment has the name of its "
    "pipeline.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="The maximum number of runs to list.",
)
@connection_options
def list_(api: Api, experiment: str | None, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    from stagecraft.pipeline.kubeflow.client import runs as of_server

    experiment_id = of_server.experiment_id(api, experiment) if experiment else None
    listed = of_server.every(api, experiment_id=experiment_id, limit=limit)
    if as_json:
        console.say_json({"runs": [_run(api, each) for each in listed]})
    elif listed:
        console.table(
            ("NAME", "STATE", "CREATED", "ID"),
            [(each.name, each.state, day(each.created), each.id) for each in listed],
        )
        if len(listed) == limit:
            console.say(f"The newest {limit}; --limit shows more.", stderr=True)
    else:
        console.say("No runs.")


@runs.command(short_help="Show the steps and parameters of a run, and what failed.")
@_run_id
@connection_options
def show(api: Api, run_id: str, as_json: bool) -> None:
    """Show the state of RUN and of its steps, and its parameters."""
    from stagecraft.pipeline.kubeflow.client import diagnosis, runs as of_server

    run = of_server.get(api, run_id)
    steps = diagnosis.explain(api, run, of_server.names(api, run))
    if as_json:
        fields = {name: step._asdict() for name, step in steps.items()}
        console.say_json({**_run(api, run), "parameters": run.parameters, "steps": fields})
        return
    console.fields(
        [
            ("run", run.name),
            ("state", _state(run)),
            ("created", day(run.created)),
            *links(api, f"runs/details/{run.id}"),
        ]
    )
    if steps:
        console.say("")
        lines = [
            (
                name,
                step.state,
                "" if step.seconds is None else f"{step.seconds:.0f}",
                step.cause or "",
            )
            for name, step in steps.items()
        ]
        console.table(("STEP", "STATE", "SECONDS", ""), lines)
    if run.parameters:
        console.say("")
        values = [(name, str(value)) for name, value in sorted(run.parameters.items())]
        console.table(("PARAMETER", "VALUE"), values)


@runs.command(short_help="Show a run until it ends.")
@_run_id
@connection_options
def watch(api: Api, run_id: str, as_json: bool) -> int:
    """Show the steps of RUN until it ends, as 'stagecraft run' shows a local run.

    Ctrl-C ends the command, not the run. Exit code: 0 if the run succeeded; 1 if not; 130 after
    Ctrl-C.
    """
    return _watch(api, run_id, as_json=as_json)


@runs.command(short_help="Print the logs of the steps of a run.")
@_run_id
@click.option(
    "--step", help="Print only the log of this step, such as Trainer. 'runs show' lists the names."
)
@click.option("--follow", "-f", "follows", is_flag=True, help="Continue until the run ends.")
@click.option("--tail", type=click.IntRange(min=0), help="Print only this many lines of each log.")
@connection_options
def logs(
    api: Api, run_id: str, step: str | None, follows: bool, tail: int | None, as_json: bool
) -> None:
    """Print the logs of the steps of RUN. Each line begins with the name of its step.

    The command reads the logs through Kubeflow Pipelines, from the pods of the run, or from the
    archive of Argo after Kubernetes has deleted the pods. If the kubectl configuration reaches the
    cluster, --follow reads the pods through the Kubernetes API, with a role that may list pods and
    read their logs (manifests/base/logs-access.yaml). With --json, each line is an object.

    \b
    stagecraft kubeflow runs logs 5a3c… --step Trainer --follow
    """
    from stagecraft.pipeline.kubeflow.client import (
        logs as of_steps,  # the Kubernetes client
        nodes,
        runs as of_server,
    )

    run = of_server.get(api, run_id)
    names = of_server.names(api, run)
    if step and names and step.removesuffix(nodes.DRIVER) not in names:
        raise UserError(
            f"--step: {step}: the run has no such step; use one of {', '.join(names)}.",
            setting="--step",
            value=step,
        )
    for name, line in of_steps.read(
        api,
        run,
        names,
        step,
        follow=follows,
        tail=tail,
        on_waiting=_say_waiting,
        on_hiccup=_say_retry,
    ):
        if as_json:
            console.say_json({"step": name, "line": line})
        else:
            console.say(line if step else f"{name} | {line}")


@runs.command(short_help="Stop a run.")
@_run_id
@connection_options
def terminate(api: Api, run_id: str, as_json: bool) -> None:
    """Stop RUN. If the run has ended, the command changes nothing."""
    from stagecraft.pipeline.kubeflow.client import runs as of_server

    run, stopped = of_server.terminate(api, of_server.get(api, run_id))
    if as_json:
        console.say_json({"terminated": stopped, "state": run.state})
    elif run.is_over:
        console.say(f"{run.name}: is over already ({run.state}).")
    else:
        console.say(f"{run.name}: {'stopping' if stopped else 'is stopping already'}.")


@runs.command(short_help="Delete a run.")
@_run_id
@connection_options
def delete(api: Api, run_id: str, as_json: bool) -> None:
    """Stop RUN if it has not ended, and delete it. Its outputs stay in the object store.

    If there is no such run, the command says so and exits with 0.
    """
    from stagecraft.pipeline.kubeflow.client import runs as of_server

    deleted = of_server.delete(api, run_id)
    if as_json:
        console.say_json({"deleted": deleted})
    else:
        console.say(f"{run_id}: {'deleted' if deleted else 'no such run; nothing to delete'}.")


def _watch(api: Api, run_id: str, *, as_json: bool) -> int:
    """Shows a run until it is over; the command's exit code."""
    from stagecraft.pipeline.cli.terminal.run_view import RunState, run_view
    from stagecraft.pipeline.kubeflow.client import diagnosis, runs as of_server

    patience = of_server.Patience(_say_retry)
    run = patience.ask(lambda: of_server.get(api, run_id))
    names = patience.ask(lambda: of_server.names(api, run))
    state = RunState(names)
    state.run_id = run.id
    with run_view(state, stderr=as_json) as show_event:

        def on_progress(name: str, step: Progress) -> None:
            event: dict[str, Any] = {"kind": "node", "node": name, "state": step.state}
            if step.state == "running":
                event["elapsed"] = step.seconds or 0.0
            else:
                event |= {"seconds": step.seconds or 0.0, "cause": step.cause}
            show_event(event)

        try:
            idle = diagnosis.IdleSteps(api, names, _say_waiting)
            run = of_server.follow(api, run_id, names, on_progress, patience, idle.check)
        except KeyboardInterrupt:
            hint = f"stagecraft kubeflow runs watch {run.id}"
            console.say(f"The run continues; watch it with: {hint}", stderr=True)
            raise
    steps = diagnosis.explain(api, run, names)
    if as_json:
        fields = {name: step._asdict() for name, step in steps.items()}
        console.say_json({**_run(api, run), "steps": fields})
    else:
        took = (run.finished - run.created).total_seconds() if run.finished and run.created else 0
        console.fields(
            [
                ("state", _state(run)),
                ("took", duration(took)),
                *links(api, f"runs/details/{run.id}"),
            ]
        )
    if run.state == "SUCCEEDED":
        return 0
    failed = [name for name, step in steps.items() if step.state == "failed"]
    for name in failed:
        console.error(
            f"{name}: {steps[name].cause or 'failed'}\n"
            f"its log: stagecraft kubeflow runs logs {run.id} --step {name}"
        )
    if not failed:
        console.error(f"{run.name}: {_state(run)}")
    return 1


def _say_waiting(name: str, problem: str) -> None:
    console.say(f"{name}: {problem}", stderr=True)


def _say_retry(problem: str) -> None:
    console.say(f"{problem} Trying again.", stderr=True)


def _state(run: Run) -> str:
    reason = run.error or ("it was stopped" if run.stopped else "")
    return f"{run.state}: {reason}" if reason else run.state


def _run(api: Api, run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "stopped": run.stopped,
        "error": run.error or None,
        "created": optional_time(run.created),
        "finished": optional_time(run.finished),
        "pipeline_id": run.pipeline_id,
        "version_id": run.version_id,
        "schedule_id": run.schedule_id,
        "link": api.link(f"runs/details/{run.id}"),
    }
