"""What ``stagecraft kubeflow runs`` does and shows."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.cli.kubeflow.showing_pipelines import day, links
from stagecraft.pipeline.cli.options import name_values
from stagecraft.pipeline.cli.state import RunState
from stagecraft.pipeline.cli.wording import duration
from stagecraft.pipeline.kubeflow.client import follow as following
from stagecraft.pipeline.kubeflow.client import pipelines, progress, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.objects import Run
from stagecraft.pipeline.kubeflow.client.progress import Progress
from stagecraft.schemas.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The command line of ``runs create``, as given."""

    pipeline: str
    version: str | None
    parameters: tuple[str, ...]
    name: str | None
    once: bool
    experiment: str | None
    pipeline_root: str | None
    service_account: str | None
    watch: bool


def create(api: Api, request: Start, *, as_json: bool) -> int:
    """Starts a run; the command's exit code."""
    parameters = name_values(request.parameters)
    pipeline = pipelines.get(api, request.pipeline)
    run, is_new = runs.create(
        api,
        pipeline,
        pipelines.version(api, pipeline, request.version),
        parameters,
        experiment=request.experiment,
        name=request.name,
        once=request.once,
        pipeline_root=request.pipeline_root,
        service_account=request.service_account,
    )
    if not as_json:
        watching = ("watch it", f"stagecraft kubeflow runs watch {run.id}")
        console.rows(
            [
                ("run", run.name + ("" if is_new else ", there already")),
                ("ID", run.id),
                *links(api, f"runs/details/{run.id}"),
                *([] if request.watch else [watching]),
            ]
        )
    if request.watch:
        return watch(api, run.id, as_json=as_json)
    if as_json:
        console.say_json({**_run(api, run), "changed": is_new})
    return 0


def show_list(api: Api, experiment: str | None, limit: int, *, as_json: bool) -> None:
    """Shows runs."""
    of_one = runs.experiment_id(api, experiment) if experiment else None
    found = runs.every(api, experiment_id=of_one, limit=limit)
    if as_json:
        console.say_json({"runs": [_run(api, one) for one in found]})
    elif found:
        console.columns(
            ("NAME", "STATE", "CREATED", "ID"),
            [(one.name, one.state, day(one.created), one.id) for one in found],
        )
        if len(found) == limit:
            console.say(f"The newest {limit}; --limit shows more.", stderr=True)
    else:
        console.say("No runs.")


def show(api: Api, run_id: str, *, as_json: bool) -> None:
    """Shows one run."""
    run = runs.get(api, run_id)
    found = _progress(run, following.names(api, run))
    if as_json:
        console.say_json({**_run(api, run), "parameters": run.parameters, "steps": _steps(found)})
        return
    console.rows(
        [
            ("run", run.name),
            ("state", _state(run)),
            ("created", day(run.created)),
            *links(api, f"runs/details/{run.id}"),
        ]
    )
    if found:
        console.say("")
        console.columns(
            ("STEP", "STATE", "SECONDS", ""),
            [
                (
                    name,
                    one.state,
                    "" if one.seconds is None else f"{one.seconds:.0f}",
                    one.cause or "",
                )
                for name, one in found.items()
            ],
        )
    if run.parameters:
        console.say("")
        values = [(name, str(value)) for name, value in sorted(run.parameters.items())]
        console.columns(("PARAMETER", "VALUE"), values)


def watch(api: Api, run_id: str, *, as_json: bool) -> int:
    """Shows a run until it is over; the command's exit code."""
    patience = following.Patience(_trying_again)
    run = patience.ask(lambda: runs.get(api, run_id))
    names = patience.ask(lambda: following.names(api, run))
    state = RunState(names)
    state.run_id = run.id
    with console.following(state, stderr=as_json) as show_event:

        def on_progress(name: str, found: Progress) -> None:
            event: dict[str, Any] = {"kind": "node", "node": name, "state": found.state}
            if found.state == "running":
                event["elapsed"] = found.seconds or 0.0
            else:
                event |= {"seconds": found.seconds or 0.0, "cause": found.cause}
            state.apply(event)
            show_event(event)

        try:
            run = following.follow(api, run_id, names, on_progress, patience)
        except KeyboardInterrupt:
            console.say(f"The run goes on: stagecraft kubeflow runs watch {run.id}", stderr=True)
            raise
    found = _progress(run, names)
    if as_json:
        console.say_json({**_run(api, run), "steps": _steps(found)})
    else:
        took = (run.finished - run.created).total_seconds() if run.finished and run.created else 0
        console.rows(
            [
                ("state", _state(run)),
                ("took", duration(took)),
                *links(api, f"runs/details/{run.id}"),
            ]
        )
    if run.state == "SUCCEEDED":
        return 0
    failed = [name for name, one in found.items() if one.state == "failed"]
    for name in failed:
        console.error(
            f"{name}: {found[name].cause or 'failed'}\n"
            f"its log: stagecraft kubeflow runs logs {run.id} --step {name}"
        )
    if not failed:
        console.error(f"{run.name}: {_state(run)}")
    return 1


def logs(
    api: Api, run_id: str, step: str | None, *, follow: bool, tail: int | None, as_json: bool
) -> None:
    """Shows what steps have printed."""
    from stagecraft.pipeline.kubeflow.client import logs as run_logs  # the Kubernetes client

    run = runs.get(api, run_id)
    names = following.names(api, run)
    if step and names and step.removesuffix(progress.DRIVER) not in names:
        raise UserError(f"{step}: the run has no such step; it has {', '.join(names)}.")

    def on_waiting(name: str, why: str) -> None:
        console.say(f"{name}: {why}", stderr=True)

    for name, line in run_logs.read(
        api,
        run,
        step,
        follow=follow,
        tail=tail,
        on_waiting=on_waiting,
        on_hiccup=_trying_again,
    ):
        if as_json:
            console.say_json({"step": name, "line": line})
        else:
            console.say(line if step else f"{name} | {line}")


def terminate(api: Api, run_id: str, *, as_json: bool) -> None:
    """Stops a run."""
    run, stopped = runs.terminate(api, runs.get(api, run_id))
    if as_json:
        console.say_json({"terminated": stopped, "state": run.state})
    elif run.is_over:
        console.say(f"{run.name}: is over already ({run.state}).")
    else:
        console.say(f"{run.name}: is being stopped{'' if stopped else ' already'}.")


def delete(api: Api, run_id: str, *, as_json: bool) -> None:
    """Deletes a run."""
    deleted = runs.delete(api, run_id)
    if as_json:
        console.say_json({"deleted": deleted})
    else:
        console.say(
            f"{run_id}: deleted."
            if deleted
            else f"{run_id}: there is no such run; nothing to delete."
        )


def _trying_again(problem: str) -> None:
    console.say(f"{problem} Trying again.", stderr=True)


def _state(run: Run) -> str:
    why = run.error or ("it was stopped" if run.stopped else "")
    return f"{run.state}: {why}" if why else run.state


def _progress(run: Run, names: list[str]) -> dict[str, Progress]:
    return progress.progress(run, names, datetime.datetime.now(datetime.timezone.utc))


def _run(api: Api, run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "stopped": run.stopped,
        "error": run.error or None,
        "created": run.created.isoformat() if run.created else None,
        "finished": run.finished.isoformat() if run.finished else None,
        "pipeline_id": run.pipeline_id,
        "version_id": run.version_id,
        "link": api.link(f"runs/details/{run.id}"),
    }


def _steps(found: dict[str, Progress]) -> dict[str, Any]:
    return {
        name: {"state": one.state, "seconds": one.seconds, "cause": one.cause}
        for name, one in found.items()
    }
