"""Runs of uploaded pipelines."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.common.settings import Settings
from stagecraft.pipeline.kubeflow.client.api import Api, name_filter
from stagecraft.pipeline.kubeflow.client.errors import ApiError
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Run, Version, document
from stagecraft.pipeline.kubeflow.document import Document


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
    """Starts a run; returns it, and whether it is new.

    Args:
        parameters: values as text, by name; others keep their defaults.
        experiment: groups runs; default: the pipeline's name, as in TFX.
        once: return the run of this name, version and values, if one exists that did not fail.
        pipeline_root: address of outputs; default: the pipeline's own. The server reads the root
            of a run alone, not that of the file (backend/src/v2/driver/root_dag.go).
    """
    if pipeline_root:
        secrets.refuse_in_address(pipeline_root, Settings.credentials_advice)
    if once and not name:
        raise UserError("--once finds a run by its name: set --name, too.", setting="--once")
    # A value for each: servers of kfp 2.5 ignore the specification's defaults.
    parameters = version.document.named(parameters)
    values = version.document.arguments(parameters)
    now = datetime.datetime.now(datetime.timezone.utc)
    group = api.call("create_experiment", name=experiment or pipeline.name, namespace=api.namespace)
    if once and name:
        for run in every(api, experiment_id=group.experiment_id, name=name):
            if run.version_id != version.id or run.state in ("FAILED", "CANCELING", "CANCELED"):
                continue
            if other := [key for key in parameters if run.parameters.get(key) != values[key]]:
                raise UserError(
                    f"{name}: a run of this name exists ({run.id}) with another value of "
                    f"{', '.join(other)}; use another --name.",
                    setting="--name",
                    value=name,
                )
            return run, False
    answer = api.call(
        "run_pipeline",
        experiment_id=group.experiment_id,
        job_name=name or f"{_title(pipeline, version)} {now:%Y-%m-%d %H:%M:%S}",
        params=values,
        pipeline_id=pipeline.id,
        version_id=version.id,
        pipeline_root=pipeline_root or version.document.spec.get("defaultPipelineRoot"),
        service_account=service_account,
    )
    return Run.of(answer), True


def _title(pipeline: Pipeline, version: Version) -> str:
    """The version's name, with the pipeline's name in front."""
    own = version.name.startswith(pipeline.name)
    return version.name if own else f"{pipeline.name} {version.name}"


def every(
    api: Api,
    *,
    experiment_id: str | None = None,
    name: str | None = None,
    limit: int | None = None,
) -> list[Run]:
    """Runs, newest first, without archived ones; filtered by experiment and name."""
    answers = api.pages(
        "list_runs",
        "runs",
        sort_by="created_at desc",
        experiment_id=experiment_id,
        namespace=api.namespace,
        filter=name_filter(name) if name else None,
    )
    shown = (answer for answer in answers if answer.storage_state != "ARCHIVED")
    return [Run.of(answer) for answer in itertools.islice(shown, limit)]


def experiment_id(api: Api, name: str) -> str:
    """ID of an experiment."""
    try:
        answer = api.call("get_experiment", experiment_name=name, namespace=api.namespace)
    except ValueError:  # of kfp
        raise UserError(f"{name}: this experiment does not exist.") from None
    return str(answer.experiment_id)


def get(api: Api, run_id: str) -> Run:
    """A run."""
    try:
        return Run.of(api.call("get_run", run_id=run_id))
    except ApiError as error:
        if error.status != 404:
            raise
        raise UserError(
            f"{run_id}: no run has this ID; see 'stagecraft kubeflow runs list'."
        ) from None


def document_of(api: Api, run: Run) -> Document | None:
    """The pipeline of a run; None: it was deleted."""
    if run.spec:
        return document(run.spec)
    if run.pipeline_id and run.version_id:
        try:
            answer = api.call(
                "get_pipeline_version",
                pipeline_id=run.pipeline_id,
                pipeline_version_id=run.version_id,
            )
            return Version.of(answer).document
        except ApiError as error:
            if error.status != 404:  # a run remains when its pipeline is deleted
                raise
    return None


def terminate(api: Api, run: Run) -> tuple[Run, bool]:
    """Stops a run; returns the run, and whether it was running."""
    if run.is_over or run.state == "CANCELING":
        return run, False
    try:
        api.call("terminate_run", run_id=run.id)
    except ApiError as error:
        if error.status != 400:
            raise
        run = get(api, run.id)
        if not (run.is_over or run.state == "CANCELING"):  # it ended during the request
            raise
        return run, False
    return run._replace(state="CANCELING"), True


def delete(api: Api, run_id: str) -> bool:
    """Stops and deletes a run; returns whether it existed. Its pods may run a little longer."""
    try:
        api.call("delete_run", run_id=run_id)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
