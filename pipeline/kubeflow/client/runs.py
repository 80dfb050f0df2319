"""Runs of uploaded pipelines."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stagecraft.common import secrets
from stagecraft.common.errors import UserError
from stagecraft.common.settings import Settings
from stagecraft.pipeline.kubeflow.client import nodes
from stagecraft.pipeline.kubeflow.client.api import Api, name_filter
from stagecraft.pipeline.kubeflow.client.errors import ApiError, NotFoundError
from stagecraft.pipeline.kubeflow.client.nodes import DRIVER, Progress
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Run, Version, document
from stagecraft.pipeline.kubeflow.document import Document

Answer = TypeVar("Answer")

POLL_SECONDS = 2.0
"""About the interval of the persistence agent's resync, which copies Argo's state."""

PATIENCE_SECONDS = 300.0


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
    with contextlib.suppress(NotFoundError):
        return Run.of(api.call("get_run", run_id=run_id))
    raise UserError(f"{run_id}: no run has this ID; see 'stagecraft kubeflow runs list'.")


def document_of(api: Api, run: Run) -> Document | None:
    """The pipeline of a run; None: it was deleted."""
    if run.spec:
        return document(run.spec)
    if run.pipeline_id and run.version_id:
        with contextlib.suppress(NotFoundError):  # a run remains when its pipeline is deleted
            answer = api.call(
                "get_pipeline_version",
                pipeline_id=run.pipeline_id,
                pipeline_version_id=run.version_id,
            )
            return Version.of(answer).document
    return None


def names(api: Api, run: Run) -> list[str]:
    """Names of a run's steps, each after its dependencies."""
    if found := document_of(api, run):
        return found.order()
    displayed = [task.display_name or "" for task in run.tasks]  # newer servers add nameless tasks
    ended = [name for name in displayed if name.endswith(DRIVER)]
    return [name.removesuffix(DRIVER) for name in ended if name != f"root{DRIVER}"]


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
    with contextlib.suppress(NotFoundError):
        api.call("delete_run", run_id=run_id)
        return True
    return False


class Patience:
    """Retries requests while the server fails or does not answer."""

    def __init__(self, on_hiccup: Callable[[str], Any], sleep: Callable[[float], Any] = time.sleep):
        self._on_hiccup, self._sleep = on_hiccup, sleep

    def pause(self) -> None:
        """Waits until the next poll."""
        self._sleep(POLL_SECONDS)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question."""
        begun, pause = time.monotonic(), POLL_SECONDS
        while True:
            try:
                return question()
            except UserError as error:  # of this server, or of the cluster
                transient = getattr(error, "transient", False)
                if not transient or time.monotonic() - begun > PATIENCE_SECONDS:
                    raise
                self._on_hiccup(str(error))
            self._sleep(pause)
            pause = min(2 * pause, 30.0)


def follow(
    api: Api,
    run_id: str,
    step_names: list[str],
    on_progress: Callable[[str, Progress], Any],
    patience: Patience,
    on_poll: Callable[[Run], Any] = lambda run: None,
) -> Run:
    """Polls until the run is over.

    Args:
        on_progress: called when a step's state changes.
        on_poll: called after each poll, unless the run is over.
    """
    states: dict[str, str] = {}
    while True:
        run = patience.ask(lambda: get(api, run_id))
        for name, step in nodes.progress(run, step_names).items():
            if states.get(name, "waiting") != step.state:
                states[name] = step.state
                on_progress(name, step)
        if run.is_over:
            return run
        on_poll(run)
        patience.pause()
