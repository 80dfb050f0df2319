"""``stagecraft kubeflow schedule``."""

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
    from stagecraft.pipeline.kubeflow.client.objects import Schedule, Trigger

_schedule = click.argument("schedule")


@click.group(cls=Group, short_help="Start runs of a pipeline at set times.")
def schedule() -> None:
    """Manage schedules: recurring runs of uploaded pipelines. SCHEDULE is a name or an ID.

    \b
    stagecraft kubeflow schedule create quickstart --cron "0 6 * * *" --parameter data.span=latest
    stagecraft kubeflow schedule list
    stagecraft kubeflow schedule pause quickstart
    """


@schedule.command(short_help="Create a schedule.")
@click.argument("pipeline")
@click.option(
    "--cron",
    callback=not_empty,
    metavar="EXPRESSION",
    help="When runs start, in UTC: minute, hour, day of month, month, day of week (0 is Sunday). "
    "With six fields, the first one is the second. @daily and '@every 6h' also work.",
)
@click.option(
    "--interval",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Instead of --cron: the time from one run to the next, in seconds.",
)
@click.option("--start", metavar="TIME", help="No run before this time, such as 2026-12-01.")
@click.option("--end", metavar="TIME", help="No run after this time.")
@parameter_option
@click.option(
    "--version",
    callback=not_empty,
    help="The version of the pipeline, by name or ID. Default: the newest one now.",
)
@click.option(
    "--name",
    callback=not_empty,
    help="The name of the schedule. Default: the name of the pipeline.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="If a different schedule has this name, delete it, and stop its current run. If it is "
    "paused, so is the new one.",
)
@click.option("--paused", is_flag=True, help="Create the schedule paused. If it exists, pause it.")
@click.option(
    "--catch-up",
    is_flag=True,
    help="Also start a run for each time that passed while the schedule was paused. Without this "
    "option, only the last of them.",
)
@run_options
@connection_options
def create(
    api: Api,
    pipeline: str,
    cron: str | None,
    interval: int | None,
    start: str | None,
    end: str | None,
    parameters: tuple[str, ...],
    version: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Start runs of PIPELINE (name or ID) at set times.

    A run starts only after the earlier run of the schedule has ended. All runs use the version that
    is the newest now, or --version. After 'pipelines update', run the command again with --replace.
    If the same schedule exists, it stays.

    \b
    stagecraft kubeflow schedule create quickstart --cron "0 6 * * *" --parameter data.span=latest
    stagecraft kubeflow schedule create quickstart --interval 21600 --name hourly --end 2099-12-31
    """
    from stagecraft.pipeline.kubeflow.client import pipelines, schedules
    from stagecraft.pipeline.kubeflow.client.objects import Trigger

    if (cron is None) == (interval is None):
        problem = "set one of them" if cron is None else "set only one of them"
        raise UserError(f"--cron, --interval: {problem}.", setting="--cron", value=cron)
    trigger = Trigger(
        schedules.six_fields(cron) if cron is not None else None,
        interval,
        schedules.moment("--start", start) if start else None,
        schedules.moment("--end", end) if end else None,
    )
    uploaded = pipelines.get(api, pipeline)
    of_pipeline = pipelines.version(api, uploaded, version)
    created, changed = schedules.create(
        api, uploaded, of_pipeline, name_values(parameters), trigger, **options
    )
    if as_json:
        console.say_json({**_schedule_fields(api, created), "changed": changed})
        return
    sent = "" if cron in (None, trigger.cron) else " (the first field is the second)"
    console.fields(
        [
            ("schedule", created.name + ("" if changed else ", exists already")),
            ("ID", created.id),
            ("state", _state(created)),
            ("when", _when(created.trigger) + sent),
            ("version", of_pipeline.name),
            *links(api, f"recurringrun/details/{created.id}"),
        ]
    )


@schedule.command("list", short_help="List all schedules.")
@connection_options
def list_(api: Api, as_json: bool) -> None:
    """List all schedules, oldest first."""
    from stagecraft.pipeline.kubeflow.client import pipelines, schedules

    listed = schedules.every(api)
    if as_json:
        console.say_json({"schedules": [_schedule_fields(api, each) for each in listed]})
    elif listed:
        names = {each.id: each.name for each in pipelines.every(api)}
        console.table(
            ("NAME", "STATE", "WHEN", "PIPELINE", "ID"),
            [
                (
                    each.name,
                    _state(each),
                    _when(each.trigger),
                    names.get(each.pipeline_id or "", each.pipeline_id or ""),
                    each.id,
                )
                for each in listed
            ],
        )
    else:
        console.say("No schedules.")


@schedule.command(short_help="Pause a schedule.")
@_schedule
@connection_options
def pause(api: Api, schedule: str, as_json: bool) -> None:
    """Pause SCHEDULE: it starts no more runs. A run that has started goes on."""
    _enable(api, schedule, False, as_json=as_json)


@schedule.command(short_help="Resume a paused schedule.")
@_schedule
@connection_options
def resume(api: Api, schedule: str, as_json: bool) -> None:
    """Resume SCHEDULE. If it missed a time, the server starts one run at once."""
    _enable(api, schedule, True, as_json=as_json)


@schedule.command(short_help="Delete a schedule.")
@_schedule
@connection_options
def delete(api: Api, schedule: str, as_json: bool) -> None:
    """Delete SCHEDULE. Kubernetes also stops a run of it that has not ended; its record stays."""
    from stagecraft.pipeline.kubeflow.client import schedules

    found = schedules.get(api, schedule)
    schedules.delete(api, found)
    if as_json:
        console.say_json({"id": found.id, "deleted": True})
    else:
        console.say(f"{found.name}: deleted.")


def _enable(api: Api, name: str, enabled: bool, *, as_json: bool) -> None:
    from stagecraft.pipeline.kubeflow.client import schedules

    found = schedules.get(api, name)
    changed = schedules.enable(api, found, enabled)
    state = _state(found._replace(enabled=enabled))
    if as_json:
        console.say_json({"id": found.id, "state": state, "changed": changed})
    else:
        console.say(f"{found.name}: {state}{'' if changed else ' already'}.")


def _state(schedule: Schedule) -> str:
    return "active" if schedule.enabled else "paused"


def _when(trigger: Trigger) -> str:
    words = [trigger.cron or "never"]
    if trigger.interval_seconds is not None:
        words = [f"every {duration(trigger.interval_seconds)}"]
    words += [f"from {day(trigger.start)}"] if trigger.start else []
    words += [f"to {day(trigger.end)}"] if trigger.end else []
    return " ".join(words)


def _schedule_fields(api: Api, schedule: Schedule) -> dict[str, Any]:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "state": _state(schedule),
        "cron": schedule.trigger.cron,
        "interval_seconds": schedule.trigger.interval_seconds,
        "start": optional_time(schedule.trigger.start),
        "end": optional_time(schedule.trigger.end),
        "catch_up": not schedule.no_catchup,
        "created": optional_time(schedule.created),
        "pipeline_id": schedule.pipeline_id,
        "version_id": schedule.version_id,
        "parameters": schedule.parameters,
        "link": api.link(f"recurringrun/details/{schedule.id}"),
    }
