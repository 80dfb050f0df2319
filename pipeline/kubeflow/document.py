"""A compiled pipeline as it lies in a file."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow import yaml_loader
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings import strict_yaml
from stagecraft.schemas import secrets
from stagecraft.schemas.base_settings import LARGEST, Settings
from stagecraft.schemas.errors import UserError

_KINDS = {
    "NUMBER_INTEGER": (int, float),
    "NUMBER_DOUBLE": (int, float),
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}

WORDS = {
    "NUMBER_INTEGER": "an integer",
    "NUMBER_DOUBLE": "a number",
    "STRING": "text",
    "BOOLEAN": "true or false",
    "LIST": "a list, as [1, 2]",
    "STRUCT": "a map, as {a: 1}",
}
"""What a parameter's type is called for people."""


class Document(NamedTuple):
    """A compiled pipeline."""

    spec: Json
    executors: Json
    """Entries of the platform document, by executor label."""

    @property
    def name(self) -> str:
        """Of the pipeline."""
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def root(self) -> str:
        """Address below which outputs go."""
        return str(self.spec.get("defaultPipelineRoot") or "minio://mlpipeline/v2/artifacts")

    @property
    def parameters(self) -> Json:
        """Definitions of the pipeline's parameters, by name."""
        definitions: Json = self.spec["root"].get("inputDefinitions", {})
        return definitions.get("parameters", {})

    def order(self) -> list[str]:
        """Names of the pipeline's tasks, one after those that it waits for.

        Raises:
            UserError: they wait for each other, or for one that is not there.
        """
        waiting = dict(self.spec["root"]["dag"]["tasks"])
        ordered: list[str] = []
        while waiting:
            ready = [name for name, task in waiting.items() if dependencies(task) <= {*ordered}]
            if not ready:
                raise UserError(
                    f"{', '.join(waiting)}: waits for a step that is not there, or for itself; see "
                    "'stagecraft lint'."
                )
            for name in ready:
                ordered.append(name)
                del waiting[name]
        return ordered

    def steps(self) -> dict[str, specs.Step]:
        """By name, in that order.

        Raises:
            UserError: there is no such order.
        """
        found = {step.name: step for step in specs.steps(self.spec)}
        return {name: found[name] for name in self.order()}

    def arguments(self, given: Mapping[str, str]) -> Json:
        """Values of the pipeline's parameters: what is given, else their defaults.

        ``validatePipelineJobInputs`` in backend/src/apiserver/template/v2_template.go.

        Raises:
            UserError: a parameter that is not there, has another type, or no value.
        """
        if unknown := sorted(set(given) - set(self.parameters)):
            raise UserError(
                f"--parameter {unknown[0]}: the pipeline has no such parameter; it has "
                f"{', '.join(sorted(self.parameters)) or 'none'}."
            )
        values = {}
        for name, definition in self.parameters.items():
            kind = definition["parameterType"]
            if name in given:
                values[name] = _parsed(given[name], kind)
                if not _fits(values[name], kind):
                    shown = f"--parameter {name}={secrets.redact(given[name]):.80}"
                    raise UserError(f"{shown}: expected {WORDS[kind]}.")
                if isinstance(values[name], str):
                    _refuse_secret(name, values[name])
            elif "defaultValue" in definition:
                values[name] = definition["defaultValue"]
            elif not definition.get("isOptional"):
                raise UserError(f"{name}: give it with --parameter; it has no default.")
        return values


def _refuse_secret(name: str, value: str) -> None:
    """A run's parameters are shown to whoever may see the run."""
    try:
        secrets.refuse_in_address(value, Settings.credentials_advice)
    except secrets.SecretInAddress as error:
        raise UserError(f"--parameter {name}: {error}.") from None


def load(path: pathlib.Path) -> Document:
    """Reads a file.

    Raises:
        UserError: it cannot be read, or holds no pipeline.
    """
    try:
        documents = yaml_loader.load_all(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}.") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    documents = [document for document in documents if isinstance(document, dict)]
    pipelines = [document for document in documents if "pipelineInfo" in document]
    if len(pipelines) != 1:
        raise UserError(
            f"{path}: holds {len(pipelines)} pipelines; expected one, as 'stagecraft compile' "
            "writes it."
        )
    executors: Json = {}
    try:
        for document in documents:
            kubernetes = document.get("platforms", {}).get("kubernetes", {})
            executors |= kubernetes.get("deploymentSpec", {}).get("executors", {})
    except (AttributeError, TypeError):
        raise UserError(
            f"{path}: platforms: expected kubernetes.deploymentSpec.executors below it; see "
            "'stagecraft lint'."
        ) from None
    return Document(pipelines[0], executors)


def check_output(path: pathlib.Path) -> None:
    """Refuses to write over a file that is no compiled pipeline, such as the settings.

    Raises:
        UserError: it is there already.
    """
    if path.exists() and not path.read_text(errors="replace").startswith(specs.HEAD):
        raise UserError(
            f"{path}: is there already, and is no compiled pipeline; move it away, or name another "
            "file with --output."
        )


def dependencies(task: Json) -> set[str]:
    """What a task waits for: ``addImplicitDependencies`` in argocompiler/dag.go."""
    return set(task.get("dependentTasks", ())) | {
        source[output]["producerTask"]
        for kind in ("parameters", "artifacts")
        for source in task.get("inputs", {}).get(kind, {}).values()
        for output in ("taskOutputParameter", "taskOutputArtifact")
        if output in source
    }


def _parsed(text: str, kind: str) -> Any:
    """A value as given by hand; None if it is none of that kind."""
    if kind == "STRING":
        return text
    with contextlib.suppress(ValueError, strict_yaml.YamlError):
        if not kind.startswith("NUMBER"):
            return strict_yaml.parse(text)
        number = float(text)  # YAML takes 1e-3 for a text, and 1:30 for a number
        if number.is_integer() and abs(number) <= LARGEST:
            return int(number) if "." in text or "e" in text.lower() else int(text)
        return number if math.isfinite(number) and kind == "NUMBER_DOUBLE" else None
    return None


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool) != (kind == "BOOLEAN"):
        return False
    return isinstance(value, _KINDS[kind])
