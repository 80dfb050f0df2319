"""Selects the engine of a ``tfx`` command, and runs the commands of the engine ``kubeflow``.

TFX selects it in tfx/tools/cli/handler/handler_factory.py. Its engine ``kubeflow`` imports a module
that TFX 1.16 removed, and its ``auto`` means ``kubeflow`` wherever kfp is installed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from tfx.dsl.io import fileio
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import KubeflowV2DagRunner
from tfx.orchestration.kubeflow.v2.pipeline_builder import DEFAULT_IMAGE_PATH_KEY
from tfx.tools.cli import labels
from tfx.tools.cli.handler import handler_factory
from tfx.tools.cli.handler.base_handler import BaseHandler
from tfx.tools.cli.handler.kubeflow_v2_dag_runner_patcher import KubeflowV2DagRunnerPatcher

from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.text import plain
from stagecraft.components.object_store import filesystem
from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.client import pipelines, runs
from stagecraft.pipeline.kubeflow.client.api import Api
from stagecraft.pipeline.kubeflow.client.connection import resolve
from stagecraft.pipeline.kubeflow.client.contexts import Context
from stagecraft.pipeline.kubeflow.client.errors import ApiError
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Run
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings, Step

_stock = handler_factory.create_handler

_RUNNER = re.compile(
    r"(?P<kubeflow>kubeflow(?:v2)?(?:dag)?(?:runner)?)"
    r"|(?P<local>local(?:dag)?runners?)|(?P<beam>beam(?:dag)?runner)|(?P<airflow>airflowdagrunner)"
)
"""Names of runners, and of modules with runners, without underscores and capitals."""

_IMAGE_OF_TFX = re.compile(r"(^|/)(tfx-oss-public|tensorflow)/tfx([:@]|$)")

_LINE = "-" * 30

_OTHER_OPTIONS = (
    "This command has fewer options: set the address with KF_PIPELINES_ENDPOINT, a token with "
    "STAGECRAFT_KUBEFLOW_TOKEN, cookies with STAGECRAFT_KUBEFLOW_COOKIES, and other options with a "
    "context ('stagecraft kubeflow contexts set', STAGECRAFT_KUBEFLOW_CONTEXT)."
)


def register() -> None:
    """Replaces TFX's selection in this process."""
    handler_factory.create_handler = create_handler


def create_handler(flags: dict[str, Any]) -> BaseHandler:
    """The handler for a command's flags; replaces TFX's function of this name."""
    if flags[labels.ENGINE_FLAG] == "auto":
        with _exit_on_error():
            flags[labels.ENGINE_FLAG] = detect(flags)
        click.echo(f"Detected {flags[labels.ENGINE_FLAG].capitalize()}.")
        click.echo("Use --engine flag if you intend to use a different orchestrator.")
    engine = flags[labels.ENGINE_FLAG]
    if engine == labels.KUBEFLOW_ENGINE:
        return _KubeflowHandler(flags)
    # TFX first lists all packages with pip for two seconds; these two engines need no list.
    if engine == labels.LOCAL_ENGINE:
        from tfx.tools.cli.handler.local_handler import LocalHandler

        return LocalHandler(flags)
    if engine == labels.BEAM_ENGINE:
        from tfx.tools.cli.handler.beam_handler import BeamHandler

        return BeamHandler(flags)
    return _stock(flags)


def detect(flags: dict[str, Any]) -> str:
    """The engine that ``auto`` means; the first rule that applies:

    1. Kubeflow, if an endpoint is given;
    2. the engine whose runner the pipeline's file imports;
    3. the engine in which a pipeline of this name was created;
    4. Kubeflow, if an address is known; otherwise local.
    """
    if flags.get(labels.ENDPOINT):
        return labels.KUBEFLOW_ENGINE
    if dsl := flags.get(labels.PIPELINE_DSL_PATH):
        engines = imported_engines(pathlib.Path(dsl))
        if len(engines) == 1:
            return engines.pop()
        if engines:
            found = " and ".join(sorted(engines))
            sys.exit(f"{dsl} imports runners for {found}. Choose one using --engine flag.")
        return labels.LOCAL_ENGINE
    name = flags.get(labels.PIPELINE_NAME)
    for engine in (labels.LOCAL_ENGINE, labels.BEAM_ENGINE):
        if name and (_home(engine) / name).is_dir():
            return engine
    known = resolve({}).context != Context()
    return labels.KUBEFLOW_ENGINE if known else labels.LOCAL_ENGINE


def imported_engines(file: pathlib.Path) -> set[str]:
    """Engines whose runners a file imports, by names of runners or modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):  # TFX reports it when it runs the file
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):  # tfx.orchestration.LocalDagRunner
            names.add(node.attr)
    words = {word for name in names for word in name.replace("_", "").lower().split(".")}
    return {str(match.lastgroup) for word in words if (match := _RUNNER.fullmatch(word))}


def _home(engine: str) -> pathlib.Path:
    """TFX's folder of created pipelines: ``_get_handler_home`` in base_handler.py."""
    home = os.environ.get(f"{engine.upper()}_HOME")
    return pathlib.Path(home) if home else pathlib.Path.home() / "tfx" / engine


@contextlib.contextmanager
def _exit_on_error() -> Iterator[None]:
    """Exits with the message of a UserError, as TFX's handlers do."""
    try:
        yield
    except UserError as error:
        sys.exit(_adapted(click.get_current_context().command, str(error)))


def _adapted(command: click.Command, text: str) -> str:
    """Adapts advice for ``stagecraft kubeflow`` to this command."""
    text = re.sub(r"--parameter\b", "--runtime-parameter", text)
    known = {name for parameter in command.params for name in parameter.opts}
    return text if set(re.findall(r"--[a-z-]+", text)) <= known else f"{text} {_OTHER_OPTIONS}"


class _KubeflowHandler(BaseHandler):
    """Runs ``tfx pipeline`` and ``tfx run`` with ``--engine=kubeflow``."""

    @_exit_on_error()
    def create_pipeline(self) -> None:
        """Compiles and uploads a new pipeline."""
        self._upload(new=True)

    @_exit_on_error()
    def update_pipeline(self) -> None:
        """Compiles, and uploads a new version."""
        self._upload(new=False)

    @_exit_on_error()
    def list_pipelines(self) -> None:
        """Prints the names of all pipelines."""
        listed = pipelines.every(self._api)
        if not listed:
            click.echo("No pipelines to display.")
            return
        click.echo("\n".join([_LINE, *(pipeline.name for pipeline in listed), _LINE]))

    @_exit_on_error()
    def delete_pipeline(self) -> None:
        """Deletes a pipeline with its versions, without its runs."""
        pipeline = self._pipeline(shared=False)
        pipelines.delete(self._api, pipeline)
        click.echo(f'Pipeline "{pipeline.name}" deleted successfully.')

    @_exit_on_error()
    def compile_pipeline(self) -> None:
        """Compiles to the file that the runner names."""
        patcher = _Patcher()
        context = self.execute_dsl(patcher)
        click.echo("Pipeline compiled successfully.")
        click.echo(f"Pipeline package path: {context[patcher.OUTPUT_FILE_PATH]}")

    @_exit_on_error()
    def create_run(self) -> None:
        """Starts a run of the newest version."""
        pipeline = self._pipeline()
        newest = pipelines.version(self._api, pipeline)
        parameters = self.flags_dict.get(labels.RUNTIME_PARAMETER) or {}
        run, _ = runs.create(self._api, pipeline, newest, parameters)
        click.echo(f"Run created for pipeline: {pipeline.name}")
        self._print(pipeline.name, [run])

    @_exit_on_error()
    def list_runs(self) -> None:
        """Prints a pipeline's runs: those of the experiment of its name."""
        name = self._pipeline().name
        if found := self._runs(name):
            self._print(name, found)
        else:
            click.echo("No runs found.")

    @_exit_on_error()
    def get_run(self) -> None:
        """Prints the state of a run."""
        run, pipeline = self._run(), self._pipeline()
        if run.pipeline_id not in (None, pipeline.id):
            raise UserError(f'Run "{run.id}" is not of pipeline "{pipeline.name}".', record=run.id)
        self._print(pipeline.name, [run])

    @_exit_on_error()
    def terminate_run(self) -> None:
        """Stops a run."""
        run, stopped = runs.terminate(self._api, self._run())
        over = "The run has already ended" if run.is_over else "The run is already stopping"
        click.echo("Run terminated." if stopped else f"{over}: {run.state}.")

    @_exit_on_error()
    def delete_run(self) -> None:
        """Deletes a run."""
        runs.delete(self._api, self._run().id)
        click.echo("Run deleted.")

    @_exit_on_error()
    def get_schema(self) -> None:
        """Copies the newest run's schema to ``schema.pbtxt``."""
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
        options = {
            "endpoint": self.flags_dict.get(labels.ENDPOINT) or None,
            "iap_client_id": self.flags_dict.get(labels.IAP_CLIENT_ID) or None,
            # The flag's default is no profile's namespace.
            "namespace": None if namespace == "kubeflow" else namespace,
        }
        return Api(resolve(options))

    def _pipeline(self, *, shared: bool = True) -> Pipeline:
        name = self.flags_dict[labels.PIPELINE_NAME]
        if (found := pipelines.find(self._api, name, shared=shared)) is None:
            raise UserError(f'Pipeline "{name}" does not exist.')
        return found

    def _run(self) -> Run:
        return runs.get(self._api, self.flags_dict[labels.RUN_ID])

    def _runs(self, name: str) -> list[Run]:
        try:
            experiment = runs.experiment_id(self._api, name)
        except ApiError:
            raise
        except UserError:  # the first run creates it
            return []
        return runs.every(self._api, experiment_id=experiment)

    def _upload(self, *, new: bool) -> None:
        self._check_pipeline_dsl_path()
        api = self._api  # connects before compiling

        def check(name: str) -> None:
            with _exit_on_error():  # not through the file, which may handle errors itself
                if new is (pipelines.find(api, name, shared=False) is not None):
                    state = "already exists" if new else "does not exist"
                    raise UserError(f'Pipeline "{name}" {state}.')

        with tempfile.TemporaryDirectory() as folder:
            patcher = _Patcher(
                check=check,
                build=self._build if self.flags_dict.get(labels.BUILD_IMAGE) else None,
                folder=folder,
            )
            context = self.execute_dsl(patcher)
            name = context[patcher.PIPELINE_NAME]
            upload = pipelines.create if new else pipelines.update
            done = upload(api, pathlib.Path(context[patcher.OUTPUT_FILE_PATH]), name)
        if link := api.link(f"pipelines/details/{done.pipeline.id}"):
            click.echo(f"Please access the pipeline detail page at {link}")
        if not done.changed:
            click.echo("The newest version has the same content; no version was added.")
        what = "created" if new else "updated"
        click.echo(f'Pipeline "{name}" {what} successfully.')

    def _build(self, image: str) -> str:
        from tfx.tools.cli.container_builder import builder  # imports docker

        base_image = self.flags_dict.get(labels.BASE_IMAGE)
        if not isinstance(image, str):
            raise UserError(
                "--build-image: default_image names several images; build them yourself.",
                setting="--build-image",
            )
        if base_image is None and not os.path.exists("Dockerfile"):
            raise UserError(
                "--build-image: TFX would write a Dockerfile from its image, without Stagecraft. "
                "Add a Dockerfile, or name an image that contains both with --build-base-image.",
                setting="--build-image",
            )
        try:
            built = builder.build(target_image=image, base_image=base_image)
        except builder.docker.errors.DockerException as error:
            raise UserError(
                f"--build-image: {image}: {error}", setting="--build-image", value=image
            ) from error
        click.echo(f'New container image "{built}" was built.')
        return str(built)

    def _newest_schema(self, pipeline: Pipeline) -> str:
        """Address of the newest run's file below ``ROOT/PIPELINE/RUN/STEP/SALT/OUTPUT``.

        Backends 2.0.0 to 2.3.0 write no folder SALT.
        """
        filesystem.register()
        found = pipelines.version(self._api, pipeline).document
        root = found.root.rstrip("/")
        steps = [
            (step.name, key)
            for step in found.steps().values()
            for key, definition in step.outputs("artifacts").items()
            if "title: tfx.Schema\n" in definition["artifactType"].get("instanceSchema", "")
        ]
        if not steps:
            raise UserError(
                f"{pipeline.name}: no component produces a schema.", record=pipeline.name
            )
        for run in self._runs(pipeline.name):
            for step, key in steps:
                folder = f"{root}/{found.name}/{run.id}/{step}"
                for salt in ("*/", ""):
                    if files := fileio.glob(f"{folder}/{salt}{key}/schema.pbtxt"):
                        return str(files[0])
        raise UserError(
            f"{pipeline.name}: no run has written a schema below {root}. Create a run, and wait "
            "until it ends.",
            record=pipeline.name,
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
        click.echo(plain(self._format_table(header, rows)))


class _Patcher(KubeflowV2DagRunnerPatcher):
    """TFX's patcher; replaces a plain ``KubeflowV2DagRunner``, which compiles for Vertex AI."""

    def __init__(
        self,
        *,
        check: Callable[[str], None] | None = None,
        build: Callable[[str], str] | None = None,
        folder: str | None = None,
    ):
        """Sets hooks: ``check`` gets the pipeline's name before compiling; ``build`` an image's."""
        super().__init__(True, build, (lambda name: folder) if folder else None)
        self._check = check
        self._stand_in: KubeflowRunner | None = None

    def _decorate(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(runner: KubeflowV2DagRunner, *rest: Any, **options: Any) -> Any:
            if isinstance(runner, KubeflowRunner):
                return f(runner, *rest, **options)
            self._stand_in = _ours(runner)
            return self._stand_in.run(*rest, **options)

        first = super()._decorate(compiled)

        @functools.wraps(f)
        def run(runner: KubeflowV2DagRunner, *rest: Any, **options: Any) -> Any:
            if runner is self._stand_in:
                return f(runner, *rest, **options)
            if self.run_called:
                raise UserError(
                    "The file runs several pipelines, and the tfx command supports one per file. "
                    "Write a file for each."
                )
            return first(runner, *rest, **options)

        return run

    def _before_run(self, runner: Any, pipeline: Any, context: Any) -> None:
        is_plain = not isinstance(runner, KubeflowRunner)
        if is_plain:
            _images(runner)
        if self._check is not None:
            self._check(context[self.PIPELINE_NAME])
        super()._before_run(runner, pipeline, context)
        if is_plain:
            file = pathlib.Path(runner._output_dir, runner._output_filename).with_suffix(".yaml")
            if self._prepare_dir_fn is None:
                document.check_output(file)
            runner._output_filename = file.name
            context[self.OUTPUT_FILE_PATH] = str(file)


def _ours(runner: KubeflowV2DagRunner) -> KubeflowRunner:
    images = _images(runner)
    settings = KubeflowSettings(
        image=images.pop(DEFAULT_IMAGE_PATH_KEY),
        steps={component: Step(image=image) for component, image in images.items()},
    )
    ours = KubeflowRunner(settings, runner._output_dir, runner._output_filename)
    if runner._exit_handler is not None:
        ours.set_exit_handler(runner._exit_handler)  # KubeflowRunner.run refuses it
    return ours


def _images(runner: KubeflowV2DagRunner) -> dict[str, str]:
    """Images by component's ID, and a default."""
    default = runner.config.default_image
    images = dict(default) if isinstance(default, Mapping) else {DEFAULT_IMAGE_PATH_KEY: default}
    for image in images.values():
        if _IMAGE_OF_TFX.search(image):
            raise SettingError(
                "default_image of KubeflowV2DagRunnerConfig",
                image,
                "does not contain Stagecraft, whose entrypoint replaces TFX's on Kubeflow "
                "Pipelines",
                "the image that the project's Dockerfile builds, or an image based on it",
            )
    return images
