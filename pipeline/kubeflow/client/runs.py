"""Runs of uploaded pipelines."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping

from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.errors import ApiError
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Run, Version
from stagecraft.pipeline.kubeflow.client.paging import named, pages
from stagecraft.schemas import secrets
from stagecraft.schemas.base_settings import Settings
from stagecraft.schemas.errors import UserError


def create(
    api: Api,
    pipeline: Pipeline,
    version: Version,
    parameters: Mapping[str, str],
    *,
    experiment: str | None = None,
    name: str | None = None,
    once: bool = False,
    pipeline_root: str | None = None,
    service_account: str | None = None,
) -> tuple[Run, bool]:
    """Starts a run.

    Args:
        api: where.
        pipeline: which pipeline.
        version: which version of it.
        parameters: values as text, by name; others keep their defaults.
        experiment: what runs are grouped by; default: the pipeline's name, as TFX has it.
        name: of the run; default: the version's, with the time.
        once: take the experiment's run of that name and version, if there is one that did not
            fail, if it has the same values.
        pipeline_root: address of outputs; default: the pipeline's own.
        service_account: of the pods; default: the server's choice.

    Returns:
        The run, and whether it is new.

    Raises:
        UserError: a parameter that is not there, has no value, or one of another type; ``once``
            without a name; an address that holds a password.
    """
    if pipeline_root:
        secrets.refuse_in_address(pipeline_root, Settings.credentials_advice)
    if once and not name:
        raise UserError("--once: give --name, too, by which a run is found again.")
    # A value of its own for each: kfp 2.5's servers take no defaults from the specification.
    values = version.document.arguments(parameters)
    now = datetime.datetime.now(datetime.timezone.utc)
    group = api.call("create_experiment", name=experiment or pipeline.name, namespace=api.namespace)
    if once and name:
        for run in every(api, experiment_id=group.experiment_id, name=name):
            if run.version_id != version.id or run.state in ("FAILED", "CANCELING", "CANCELED"):
                continue
            if other := [key for key in parameters if run.parameters.get(key) != values[key]]:
                raise UserError(
                    f"{name}: there is such a run already ({run.id}), with another value of "
                    f"{', '.join(other)}; give another --name."
                )
            return run, False
    answer = api.call(
        "run_pipeline",
        experiment_id=group.experiment_id,
        job_name=name or f"{_title(pipeline, version)} {now:%Y-%m-%d %H:%M:%S}",
        params=values,
        pipeline_id=pipeline.id,
        version_id=version.id,
        pipeline_root=pipeline_root,
        service_account=service_account,
    )
    return Run.of(answer), True


def _title(pipeline: Pipeline, version: Version) -> str:
    """A version of no other name than its number says little in a list of runs."""
    own = version.name.startswith(pipeline.name)
    return version.name if own else f"{pipeline.name} {version.name}"


def every(
    api: Api,
    *,
    experiment_id: str | None = None,
    name: str | None = None,
    limit: int | None = None,
) -> list[Run]:
    """Runs, newest first, but for archived ones.

    Args:
        api: where.
        experiment_id: only of this experiment.
        name: only of this name.
        limit: how many, at most.
    """
    answers = pages(
        api,
        "list_runs",
        "runs",
        sort_by="created_at desc",
        experiment_id=experiment_id,
        namespace=api.namespace,
        filter=named(name) if name else None,
    )
    shown = (answer for answer in answers if answer.storage_state != "ARCHIVED")
    return [Run.of(answer) for answer in itertools.islice(shown, limit)]


def experiment_id(api: Api, name: str) -> str:
    """ID of an experiment.

    Raises:
        UserError: there is none of that name.
    """
    try:
        answer = api.call("get_experiment", experiment_name=name, namespace=api.namespace)
    except ValueError:  # of kfp
        raise UserError(f"{name}: there is no such experiment.") from None
    return str(answer.experiment_id)


def get(api: Api, run_id: str) -> Run:
    """A run.

    Raises:
        UserError: there is none of that ID.
    """
    try:
        return Run.of(api.call("get_run", run_id=run_id))
    except ApiError as error:
        if error.status != 404:
            raise
        raise UserError(
            f"{run_id}: there is no such run; it takes an ID, see 'stagecraft kubeflow runs list'."
        ) from None


def terminate(api: Api, run: Run) -> tuple[Run, bool]:
    """Stops a run.

    Returns:
        The run, and whether there was anything to stop.
    """
    if run.is_over or run.state == "CANCELING":
        return run, False
    try:
        api.call("terminate_run", run_id=run.id)
    except ApiError as error:
        if error.status != 400:
            raise
        run = get(api, run.id)
        if not (run.is_over or run.state == "CANCELING"):  # meanwhile
            raise
        return run, False
    return run._replace(state="CANCELING"), True


def delete(api: Api, run_id: str) -> bool:
    """Deletes a run, stopping it first; whether it was there.

    The server deletes the workflow, too, but not always its pods' work at once.
    """
    try:
        api.call("delete_run", run_id=run_id)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
