"""The ``tfx`` command's engine ``kubeflow``, for open-source Kubeflow Pipelines 2.x.

Verbs and words are those of tfx/tools/cli/handler/kubeflow_handler.py, which TFX 1.16 broke.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable

import click
from tfx.dsl.io import fileio
from tfx.tools.cli import labels
from tfx.tools.cli.handler.base_handler import BaseHandler

from stagecraft.components import object_store
from stagecraft.pipeline.kubeflow.client import pipelines, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.connection import resolve
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Run
from stagecraft.pipeline.tfx_command.patcher import KubeflowPatcher
from stagecraft.schemas.errors import UserError

_LINE = "-" * 30


def _told(method: Callable[..., None]) -> Callable[..., None]:
    """Ends the command with what is wrong, as TFX's handlers do."""

    @functools.wraps(method)
    def wrapped(self: KubeflowHandler) -> None:
        try:
            method(self)
        except UserError as error:
            sys.exit(str(error))

    return wrapped


class KubeflowHandler(BaseHandler):
    """What ``tfx pipeline`` and ``tfx run`` do with ``--engine=kubeflow``."""

    @_told
    def create_pipeline(self) -> None:
        """Compiles and uploads a pipeline that is not there yet."""
        self._upload(new=True)

    @_told
    def update_pipeline(self) -> None:
        """Compiles, and uploads a new version."""
        self._upload(new=False)

    @_told
    def list_pipelines(self) -> None:
        """Names of all pipelines."""
        found = pipelines.every(self._api)
        if not found:
            click.echo("No pipelines to display.")
            return
        click.echo("\n".join([_LINE, *(pipeline.name for pipeline in found), _LINE]))

    @_told
    def delete_pipeline(self) -> None:
        """Deletes a pipeline with its versions; its runs stay."""
        pipeline = self._pipeline()
        pipelines.delete(self._api, pipeline)
        click.echo(f'Pipeline "{pipeline.name}" deleted successfully.')

    @_told
    def compile_pipeline(self) -> None:
        """Compiles to the file that the runner names."""
        patcher = KubeflowPatcher(call_real_run=True)
        context = self.execute_dsl(patcher)
        click.echo("Pipeline compiled successfully.")
        click.echo(f"Pipeline package path: {context[patcher.OUTPUT_FILE_PATH]}")

    @_told
    def create_run(self) -> None:
        """Starts a run of the newest version."""
        pipeline = self._pipeline()
        newest = pipelines.version(self._api, pipeline)
        parameters = self.flags_dict.get(labels.RUNTIME_PARAMETER) or {}
        run, _ = runs.create(self._api, pipeline, newest, parameters)
        click.echo(f"Run created for pipeline: {pipeline.name}")
        self._print(pipeline.name, [run])

    @_told
    def list_runs(self) -> None:
        """Runs of a pipeline: of the experiment of its name."""
        name = self._pipeline().name
        try:
            found = runs.every(self._api, experiment_id=runs.experiment_id(self._api, name))
        except UserError as error:
            if not str(error).endswith(f"No experiment is found with name {name}."):
                raise
            found = []
        if found:
            self._print(name, found)
        else:
            click.echo("No runs found.")

    @_told
    def get_run(self) -> None:
        """State of a run."""
        self._print(self.flags_dict[labels.PIPELINE_NAME], [self._run()])

    @_told
    def terminate_run(self) -> None:
        """Stops a run."""
        run = self._run()
        if runs.terminate(self._api, run):
            click.echo("Run terminated.")
        else:
            click.echo(f"Run is over already: {run.state}.")

    @_told
    def delete_run(self) -> None:
        """Deletes a run."""
        runs.delete(self._api, self._run().id)
        click.echo("Run deleted.")

    @_told
    def get_schema(self) -> None:
        """Copies the schema that the newest run has made to ``schema.pbtxt``."""
        pipeline = self._pipeline()
        address = self._newest_schema(pipeline)
        copy = pathlib.Path.cwd() / "schema.pbtxt"
        with fileio.open(address, "rb") as source:
            copy.write_bytes(source.read())
        click.echo(f"Path to schema: {copy}")
        click.echo(f"*********SCHEMA FOR {pipeline.name.upper()}**********")
        click.echo(copy.read_text())

    @functools.cached_property
    def _api(self) -> Api:
        namespace = self.flags_dict.get(labels.NAMESPACE)
        given = {
            "endpoint": self.flags_dict.get(labels.ENDPOINT) or None,
            "iap_client_id": self.flags_dict.get(labels.IAP_CLIENT_ID) or None,
            # The flag's default, which is no profile's.
            "namespace": None if namespace == "kubeflow" else namespace,
        }
        return Api(resolve(given))

    def _pipeline(self) -> Pipeline:
        return pipelines.get(self._api, self.flags_dict[labels.PIPELINE_NAME])

    def _run(self) -> Run:
        return runs.get(self._api, self.flags_dict[labels.RUN_ID])

    def _upload(self, *, new: bool) -> None:
        self._api  # noqa: B018  nobody waits for a compiler, and then cannot connect
        build = _build_image if self.flags_dict.get(labels.BUILD_IMAGE) else None
        folder = tempfile.mkdtemp()
        try:
            patcher = KubeflowPatcher(
                call_real_run=True,
                build_image_fn=(
                    functools.partial(build, base_image=self.flags_dict.get(labels.BASE_IMAGE))
                    if build
                    else None
                ),
                prepare_dir_fn=lambda name: folder,
            )
            context = self.execute_dsl(patcher)
            name = context[patcher.PIPELINE_NAME]
            file = pathlib.Path(context[patcher.OUTPUT_FILE_PATH])
            if new and pipelines.find(self._api, name):
                raise UserError(f'Pipeline "{name}" already exists.')
            upload = pipelines.create if new else pipelines.update
            done = upload(self._api, file, name)
        finally:
            shutil.rmtree(folder)
        if link := self._api.link(f"pipelines/details/{done.pipeline.id}"):
            click.echo(f"Please access the pipeline detail page at {link}")
        what = "created" if new else "updated"
        click.echo(f'Pipeline "{name}" {what} successfully.')

    def _newest_schema(self, pipeline: Pipeline) -> str:
        """Address of a file below ``ROOT/PIPELINE/RUN/STEP/SALT/OUTPUT``, of the newest run."""
        object_store.register()
        found = pipelines.version(self._api, pipeline).document
        steps = [
            (step.name, key)
            for step in found.steps().values()
            for key, definition in step.component.get("outputDefinitions", {})
            .get("artifacts", {})
            .items()
            if "title: tfx.Schema\n" in definition["artifactType"].get("instanceSchema", "")
        ]
        if not steps:
            raise UserError(f"{pipeline.name}: no component makes a schema.")
        experiment = runs.experiment_id(self._api, pipeline.name)
        for run in runs.every(self._api, experiment_id=experiment):
            for step, key in steps:
                pattern = f"{found.root}/{found.name}/{run.id}/{step}/*/{key}/schema.pbtxt"
                if files := fileio.glob(pattern):
                    return str(files[0])
        raise UserError(
            f"{pipeline.name}: no run has made a schema below {found.root} yet. Create a run, and "
            "wait for it."
        )

    def _print(self, name: str, found: list[Run]) -> None:
        header = ["pipeline_name", "run_id", "status", "created_at", "link"]
        rows = [
            [
                name,
                run.id,
                run.state,
                run.created.isoformat() if run.created else "",
                self._api.link(f"runs/details/{run.id}"),
            ]
            for run in found
        ]
        click.echo(self._format_table(header, rows))


def _build_image(image: str, base_image: str | None) -> str:
    from tfx.tools.cli.container_builder import builder  # imports docker

    if not os.path.exists("Dockerfile") and base_image is None:
        raise UserError(
            "--build-image: TFX would make a Dockerfile from its own image, which has no "
            "Stagecraft: bring a Dockerfile, or name an image with both by --build-base-image."
        )
    built = builder.build(target_image=image, base_image=base_image)
    click.echo(f'New container image "{built}" was built.')
    return str(built)
