"""Schedules: recurring runs of Kubeflow Pipelines, which start runs of one version."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Mapping
from typing import Any

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.settings import Settings
from stagecraft.pipeline.kubeflow.client.api import Api, name_filter
from stagecraft.pipeline.kubeflow.client.errors import ApiError, NotFoundError
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Schedule, Trigger, Version

CRON = "0 0 6 * * *: second, minute, hour, day of month, month, day of week, in UTC"


def six_fields(cron: str) -> str:
    """A cron expression with the six fields of the server; five fields get the second 0.

    The server also takes five fields, but as second to month: ``0 6 * * *`` would be each hour
    (``Parse`` in github.com/robfig/cron 1.2.0).
    """
    fields = cron.split()
    if cron.startswith("@") or len(fields) == 6:
        return " ".join(fields)
    if len(fields) == 5:
        return " ".join(("0", *fields))
    raise SettingError("--cron", cron, f"has {len(fields)} fields instead of 5 or 6", CRON)


def moment(option: str, text: str) -> datetime.datetime:
    """A point in time; without a zone it is in UTC."""
    try:
        # Python 3.10 reads no Z.
        time = datetime.datetime.fromisoformat(text.removesuffix("Z")).replace(microsecond=0)
    except ValueError:
        example = "2026-12-01 or 2026-12-01T06:00:00+01:00"
        raise SettingError(option, text, "is not a date or a time", example) from None
    return time if time.tzinfo else time.replace(tzinfo=datetime.timezone.utc)


def create(
    api: Api,
    pipeline: Pipeline,
    version: Version,
    parameters: Mapping[str, str],
    trigger: Trigger,
    *,
    name: str | None = None,
    experiment: str | None = None,
    catch_up: bool = False,
    paused: bool = False,
    replace: bool = False,
    pipeline_root: str | None = None,
    service_account: str | None = None,
) -> tuple[Schedule, bool]:
    """Creates a schedule; returns it, and whether anything changed.

    At most one of its runs runs at a time. If the same schedule exists, it stays; ``paused`` then
    pauses it.

    Args:
        parameters: values as text, by name; others keep their defaults.
        name: default: the pipeline's name. The server permits several schedules of a name; this
            function does not, because commands find a schedule by its name.
        experiment: groups runs; default: the pipeline's name.
        catch_up: also start runs for the times that passed while the schedule was paused.
        replace: delete other schedules of this name. If one was paused, the new one is, too.
        pipeline_root: address of outputs; default: the pipeline's own.
        service_account: default: the server's. It is not known, so a schedule with another one
            counts as the same.

    Raises:
        SettingError: the times, the parameters or the cron expression are wrong.
        UserError: a different schedule has this name.
    """
    if trigger.end and trigger.end <= datetime.datetime.now(datetime.timezone.utc):
        raise SettingError("--end", trigger.end.isoformat(), "is in the past")
    if trigger.start and trigger.end and trigger.start >= trigger.end:
        raise SettingError("--end", trigger.end.isoformat(), "is not after --start")
    if pipeline_root:
        secrets.refuse_in_address(pipeline_root, Settings.credentials_advice)
    values = version.document.arguments(parameters)
    name = name or pipeline.name
    pipeline_root = pipeline_root or version.document.spec.get("defaultPipelineRoot")
    group = api.call("create_experiment", name=experiment or pipeline.name, namespace=api.namespace)
    existing = _named(api, name)
    wanted = {
        "version_id": version.id,
        "parameters": values,
        "trigger": trigger,
        "no_catchup": not catch_up,
        "experiment_id": group.experiment_id,
        "pipeline_root": pipeline_root,
        **({"service_account": service_account} if service_account else {}),
    }
    same = next((one for one in existing if wanted.items() <= one._asdict().items()), None)
    if existing and not same and not replace:
        raise UserError(
            f"{name}: another schedule has this name ({existing[0].id}). Replace it with "
            "--replace, or use another --name.",
            setting="--name",
            value=name,
            suggestion="--replace",
        )
    changed = same is None
    if same is None:
        same = _created(
            api,
            trigger,
            experiment_id=group.experiment_id,
            job_name=name,
            no_catchup=not catch_up,
            params=values,
            pipeline_id=pipeline.id,
            version_id=version.id,
            enabled=not paused and all(one.enabled for one in existing),
            pipeline_root=pipeline_root,
            service_account=service_account,
        )
    elif paused and enable(api, same, False):
        same, changed = same._replace(enabled=False), True
    for one in existing if replace else ():  # now that the new one exists: a failure leaves one
        if one.id != same.id:
            delete(api, one)
            changed = True
    return same, changed


def _created(api: Api, trigger: Trigger, **arguments: Any) -> Schedule:
    try:
        return Schedule.of(
            api.call(
                "create_recurring_run",
                start_time=_stamp(trigger.start),
                end_time=_stamp(trigger.end),
                interval_second=trigger.interval_seconds,
                cron_expression=trigger.cron,
                max_concurrency=1,
                **arguments,
            )
        )
    except ApiError as error:
        if error.status == 400 and "Schedule cron" in str(error):
            problem = f"is refused by the server ({str(error).rpartition('Error: ')[2]})"
            raise SettingError("--cron", trigger.cron, problem, CRON) from None
        raise


def every(api: Api) -> list[Schedule]:
    """All schedules, oldest first."""
    answers = api.pages("list_recurring_runs", "recurring_runs", namespace=api.namespace)
    return [Schedule.of(answer) for answer in answers]


def get(api: Api, name: str) -> Schedule:
    """The schedule of a name or an ID."""
    found = _named(api, name)
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise UserError(f"{name}: {len(found)} schedules have this name; give an ID: {ids}.")
    if found:
        return found[0]
    known = every(api)
    for one in known:
        if one.id == name:
            return one
    names = ", ".join(sorted({one.name for one in known})) or "none"
    raise UserError(
        f"{name}: this schedule does not exist; schedules: {names}.", value=name, suggestion=names
    )


def enable(api: Api, schedule: Schedule, enabled: bool) -> bool:
    """Resumes or pauses a schedule; returns whether that changed it. Its runs go on."""
    if schedule.enabled == enabled:
        return False
    method = "enable_recurring_run" if enabled else "disable_recurring_run"
    api.call(method, recurring_run_id=schedule.id)
    return True


def delete(api: Api, schedule: Schedule) -> None:
    """Deletes a schedule. Kubernetes then also stops a run of it that has not ended."""
    with contextlib.suppress(NotFoundError):  # another client deleted it
        api.call("delete_recurring_run", recurring_run_id=schedule.id)


def _named(api: Api, name: str) -> list[Schedule]:
    answers = api.pages(
        "list_recurring_runs", "recurring_runs", namespace=api.namespace, filter=name_filter(name)
    )
    return [Schedule.of(answer) for answer in answers]


def _stamp(time: datetime.datetime | None) -> str | None:
    return f"{time.astimezone(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if time else None
