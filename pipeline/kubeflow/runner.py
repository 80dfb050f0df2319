"""Compiles any TFX pipeline for open-source Kubeflow Pipelines 2.x.

TFX's runner compiles for Vertex AI; docs/explanation/kubeflow.md lists the differences. ``linter``
ports the rules of the backend.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner import (
    KubeflowV2DagRunner,
    KubeflowV2DagRunnerConfig,
)
from tfx.orchestration.pipeline import Pipeline
from tfx.types import Artifact
from tfx.types.artifact import PropertyType

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow import linter, spec as specs
from stagecraft.pipeline.kubeflow.compiler import nodes, platform, step_settings
from stagecraft.pipeline.kubeflow.linter.rules import argo_tags
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings.kubeflow import KubeflowSettings

_log = logging.getLogger(__name__)

_OPENAPI_TYPES = {
    PropertyType.INT: "integer",
    PropertyType.FLOAT: "number",
    PropertyType.STRING: "string",
    PropertyType.BOOLEAN: "boolean",
}
"""Types of OpenAPI; all others are objects."""


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class KubeflowRunner(KubeflowV2DagRunner):
    """Compiles a pipeline to a YAML file.

    ::

        KubeflowRunner(KubeflowSettings(image="…@sha256:…")).run(pipeline)

    It is a ``KubeflowV2DagRunner``, whose ``run`` the ``tfx`` command replaces.
    """

    def __init__(
        self,
        settings: KubeflowSettings | None = None,
        output_dir: str | None = None,
        output_filename: str = "pipeline.yaml",
        *,
        descriptions: Mapping[str, str] | None = None,
        on_warning: Callable[[str], object] = _log.warning,
    ):
        """Sets options and output.

        Args:
            settings: image, and settings of each step. Default: the image ``stagecraft:VERSION``.
            output_dir: folder of the file; default: the current one.
            output_filename: its name. The content is YAML, whatever the extension.
            on_warning: called with each warning about the pipeline.
        """
        self.settings = settings or KubeflowSettings()
        self._descriptions, self._warn = descriptions or {}, on_warning
        config = KubeflowV2DagRunnerConfig(
            default_image=self.settings.image,
            default_commands=[*specs.ENTRYPOINT, specs.RUN],
            use_pipeline_spec_2_1=True,
        )
        super().__init__(config, output_dir, output_filename)

    def run(
        self,
        pipeline: Pipeline,
        parameter_values: Mapping[str, Any] | None = None,
        write_out: bool | None = True,
    ) -> Json | None:
        """Compiles.

        Args:
            pipeline: any TFX pipeline whose root is a gs://, s3:// or minio:// address.
            parameter_values: defaults of runtime parameters, in place of their own.
            write_out: whether to write the file.

        Returns:
            ``{"pipelineSpec": …, "platformSpec": …}``; the latter only if a step has Kubernetes
            settings. None if a replaced ``run`` of the base class compiles nothing.

        Raises:
            UserError: a component cannot run on Kubeflow.
        """
        if self._exit_handler is not None:
            nodes.check_exit_handler(self._exit_handler)
        name = pipeline.pipeline_info.pipeline_name
        try:
            with _properties_in_schemas():
                compiled = super().run(_without_resolvers(pipeline), write_out=False)
        except (NotImplementedError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{name}: TFX cannot compile it: {error}", record=name) from error
        if compiled is None:
            return None
        spec = specs.whole_numbers(compiled["pipelineSpec"])
        self._describe(spec, pipeline, parameter_values or {})
        try:
            executors = self._adapt(spec, pipeline)
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{name}: {error}", record=name) from error
        documents = [spec, *filter(None, [platform.document(executors)])]
        text = _header(spec) + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=True, width=100)
        if findings := linter.check(text):
            raise UserError(linter.refusal(name, findings))
        if write_out:
            _write(pathlib.Path(self._output_dir) / self._output_filename, text)
        return {
            "pipelineSpec": spec,
            **({"platformSpec": documents[1]} if len(documents) > 1 else {}),
        }

    def _adapt(self, spec: Json, pipeline: Pipeline) -> Json:
        """Adapts the spec to the backend; returns entries of the platform document."""
        drivers = nodes.replace(spec, pipeline, str(self.config.default_image))
        executors = step_settings.apply(
            spec, pipeline, self._nodes(pipeline), self.settings, drivers, self._warn
        )
        _escape_tags(spec)
        specs.pass_parameters(spec)
        specs.rename_for_argo(spec)
        specs.drop_implied_dependencies(spec)
        specs.complete_arguments(spec, str(pipeline.pipeline_info.pipeline_root))
        return executors

    def _nodes(self, pipeline: Pipeline) -> list[Any]:
        """The nodes of the pipeline, and the exit handler."""
        return [*pipeline.components, *filter(None, [self._exit_handler])]

    def _describe(self, spec: Json, pipeline: Pipeline, values: Mapping[str, Any]) -> None:
        """Adds the root, defaults and descriptions, which TFX omits."""
        spec["defaultPipelineRoot"] = str(pipeline.pipeline_info.pipeline_root)
        spec["pipelineInfo"]["description"] = _description(self._nodes(pipeline))
        defaults = {
            value.name: value.default
            for node in pipeline.components
            for value in node.exec_properties.values()
            if isinstance(value, RuntimeParameter)
        }
        inputs = specs.inputs(spec["root"], "parameters")
        if unknown := sorted(set(values) - set(inputs)):
            raise SettingError(
                "parameter_values",
                ", ".join(unknown),
                "does not exist",
                f"a runtime parameter of the pipeline: {', '.join(sorted(inputs)) or 'none'}",
            )
        for name, definition in inputs.items():
            default = values.get(name, defaults.get(name))
            if default is not None:
                definition["defaultValue"] = default
            if name in self._descriptions:
                definition["description"] = self._descriptions[name]


def _without_resolvers(pipeline: Pipeline) -> Pipeline:
    """A copy for TFX's compiler, which supports two resolvers; the backend runs none."""
    nodes.check(pipeline)
    pipeline.finalize()
    result = copy.copy(pipeline)
    # The property would sort again, without the removed nodes.
    result._components = [node for node in pipeline.components if not isinstance(node, Resolver)]
    return result


@contextlib.contextmanager
def _properties_in_schemas() -> Iterator[None]:
    """In this block, TFX's compiler keeps ``PROPERTIES`` of users' artifact types."""
    original = compiler_utils.get_artifact_schema

    def get_artifact_schema(artifact_type: type[Artifact]) -> str:
        text: str = original(artifact_type)
        schema = yaml.safe_load(text)
        own = {
            name: {"type": _OPENAPI_TYPES.get(each.type, "object")}
            for name, each in (artifact_type.PROPERTIES or {}).items()
            if name not in schema.get("properties", {})
        }
        if not own:
            return text
        schema["properties"] = schema.get("properties", {}) | own
        return str(yaml.dump(schema, sort_keys=False))

    compiler_utils.get_artifact_schema = get_artifact_schema
    try:
        yield
    finally:
        compiler_utils.get_artifact_schema = original


def _escape_tags(spec: Json) -> None:
    """Escapes Argo's template tags ``{{…}}`` in parameters; the entrypoint restores them.

    The backend writes constants into an Argo Workflow, and Argo replaces or refuses some tags in
    it. Such constants become JSON without tags.
    """
    for step in specs.steps(spec):
        if not step.is_ours:
            continue
        for source in step.sources("parameters").values():
            value = source.get("runtimeValue", {}).get("constant")
            if isinstance(value, str) and any(argo_tags.check_texts(value, "")):
                text = json.dumps(value).replace("{{", "{\\u007b")
                source["runtimeValue"]["constant"] = f"{specs.ESCAPED}{text}"


def _description(nodes: list[Any]) -> str:
    """A line per component, from its docstring; the backend allows 1,024 characters."""
    lines = [
        f"{node.id}: {inspect.cleandoc(text).splitlines()[0].replace('``', '')}"
        for node in nodes
        # Not a base class's docstring, which describes all components.
        if isinstance(node, BaseComponent) and (text := type(node).__doc__)
    ]
    while len("\n".join(lines)) > 1024:
        lines[-2:] = ["…"]
    return "\n".join(lines)


def _header(spec: Json) -> str:
    """Comments at the start of the file, as the KFP SDK writes them."""
    info = spec["pipelineInfo"]
    lines = [specs.HEAD, f"# Name: {info['name']}", "# Description:"]
    lines += [f"#    {line}" for line in info["description"].splitlines()]
    inputs = specs.inputs(spec["root"], "parameters")
    lines += ["# Inputs:"] if inputs else []
    lines += [
        f"#    {name}: {definition['parameterType']} [Default: {definition.get('defaultValue')!r}]"
        for name, definition in sorted(inputs.items())
    ]
    return "\n".join(lines) + "\n"


def _write(path: pathlib.Path, text: str) -> None:
    """Writes a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)
