"""A compiled pipeline in a file."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from stagecraft.common import secrets
from stagecraft.common.errors import SettingError, UserError
from stagecraft.common.settings import LARGEST, Settings
from stagecraft.components.example_gen import spans
from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.spec import Json
from stagecraft.pipeline.settings import strict_yaml

WORDS = {
    "NUMBER_INTEGER": "an integer",
    "NUMBER_DOUBLE": "a number",
    "STRING": "text",
    "BOOLEAN": "true or false",
    "LIST": "a list, as [1, 2]",
    "STRUCT": "a map, as {a: 1}",
}


class Document(NamedTuple):
    """A compiled pipeline."""

    spec: Json
    executors: Json
    """Entries of the platform document, by executor label."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def root(self) -> str:
        """Address below which steps write outputs."""
        return specs.root(self.spec)

    @property
    def parameters(self) -> Json:
        """Definitions of the pipeline's parameters, by name."""
        return specs.inputs(self.spec["root"], "parameters")

    def order(self) -> list[str]:
        """Names of the steps, each after its dependencies."""
        return list(self.steps())

    def steps(self) -> dict[str, specs.Step]:
        """Steps by name, in that order; those of a DAG take its place.

        A later step that has the name of another, in another DAG, has its path in its name.

        Raises:
            UserError: a dependency, a component or an executor is missing.
        """
        found: dict[str, specs.Step] = {}
        for step in self.walk():
            if not step.is_dag:
                taken = step.name in found
                found["/".join((*step.path, step.name)) if taken else step.name] = step
        return found

    def walk(self, dag: Json | None = None, path: tuple[str, ...] = ()) -> Iterator[specs.Step]:
        """All tasks of a DAG, by default of the root, each DAG before its own tasks.

        Args:
            dag: the component.
            path: of its tasks.

        Raises:
            UserError: a dependency, a component or an executor is missing.
        """
        for step in self.tasks(dag or self.spec["root"], path):
            yield step
            if step.is_dag:
                yield from self.walk(step.component, (*path, step.name))

    def tasks(self, dag: Json, path: tuple[str, ...]) -> list[specs.Step]:
        """The tasks of a DAG, each after its dependencies; also those that are DAGs.

        Args:
            dag: the component.
            path: of its tasks.

        Raises:
            UserError: as said.
        """
        try:
            waiting = list(specs.of_dag(self.spec, dag, path))
        except KeyError as error:
            raise UserError(f"{error} is missing; see 'stagecraft lint'.") from None
        ordered: list[specs.Step] = []
        while waiting:
            known = {step.name for step in ordered}
            ready = [step for step in waiting if specs.dependencies(step.task) <= known]
            if not ready:
                names = ", ".join(step.name for step in waiting)
                raise UserError(
                    f"{names}: a dependency is missing or circular; see 'stagecraft lint'."
                )
            ordered += ready
            known = {step.name for step in ordered}
            waiting = [step for step in waiting if step.name not in known]
        return ordered

    def named(self, values: Mapping[str, str]) -> dict[str, str]:
        """Values by the names of parameters, which a setting may stand for: ``train.epochs``."""

        def known(name: str) -> str:
            flat = name.replace(".", "_")
            return flat if flat in self.parameters else name

        return {known(name): value for name, value in values.items()}

    def arguments(self, values: Mapping[str, str]) -> Json:
        """Parameters with their defaults: ``validatePipelineJobInputs`` in v2_template.go."""
        values = self.named(values)
        if unknown := sorted(set(values) - set(self.parameters)):
            known = ", ".join(sorted(self.parameters)) or "none"
            raise SettingError(
                "--parameter",
                unknown[0],
                "does not exist",
                f"one of the pipeline's parameters: {known}",
            )
        arguments = {}
        for name, definition in self.parameters.items():
            kind = definition["parameterType"]
            if name in values:
                arguments[name] = _parsed(values[name], kind)
                if not specs.fits(specs.type_of(arguments[name]), kind):
                    shown = f"{name}={secrets.redact(values[name]):.80}"
                    raise SettingError("--parameter", shown, f"is not {WORDS.get(kind, kind)}")
                if isinstance(arguments[name], str):
                    _refuse_secret(name, arguments[name])
                    if name == "data_span":  # of the pipelines that compile_pipeline writes
                        spans.number_of(arguments[name], "--parameter")
            elif "defaultValue" in definition:
                arguments[name] = definition["defaultValue"]
            elif not definition.get("isOptional"):
                raise SettingError("--parameter", name, "has no default", f"{name}=VALUE")
        return arguments


def _refuse_secret(name: str, value: str) -> None:
    """Everybody who may see a run sees its parameters."""
    try:
        secrets.refuse_in_address(value, Settings.credentials_advice)
    except secrets.SecretInAddress as error:
        raise UserError(
            f"--parameter {name}: {error}.", setting="--parameter", value=name
        ) from None


def load(path: pathlib.Path) -> Document:
    """Reads a file; raises a UserError if it contains no pipeline."""
    try:
        documents = specs.load_all(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read: {getattr(error, 'strerror', error)}.", file=str(path)
        ) from None
    except yaml.YAMLError as error:
        raise UserError(
            f"{path}: is not YAML: {' '.join(str(error).split())}", file=str(path)
        ) from None
    documents = [document for document in documents if isinstance(document, dict)]
    pipelines = [document for document in documents if "pipelineInfo" in document]
    if len(pipelines) != 1:
        raise UserError(
            f"{path}: contains {len(pipelines)} pipelines instead of one; 'stagecraft compile' "
            "writes such a file.",
            file=str(path),
        )
    executors: Json = {}
    try:
        for document in documents:
            kubernetes = document.get("platforms", {}).get("kubernetes", {})
            executors |= kubernetes.get("deploymentSpec", {}).get("executors", {})
    except (AttributeError, TypeError):
        raise UserError(
            f"{path}: platforms has no kubernetes.deploymentSpec.executors; see 'stagecraft lint'.",
            file=str(path),
            record="platforms",
        ) from None
    return Document(pipelines[0], executors)


def check_output(path: pathlib.Path) -> None:
    """Refuses to replace a file that is no compiled pipeline, such as the settings."""
    if path.exists() and not path.read_text(errors="replace").startswith(specs.HEAD):
        raise UserError(
            f"{path} exists and is not a compiled pipeline; move it, or name another file "
            "with --output.",
            setting="--output",
            file=str(path),
        )


def _parsed(text: str, kind: str) -> Any:
    """A value of a command line; None: it is of another kind."""
    if kind == "STRING":
        return text
    with contextlib.suppress(ValueError, strict_yaml.YamlError):
        if not kind.startswith("NUMBER"):
            return strict_yaml.parse(text)
        number = float(text)  # in YAML, 1e-3 is text, and 1:30 is a number
        if number.is_integer() and abs(number) <= LARGEST:
            return int(number) if "." in text or "e" in text.lower() else int(text)
        return number if math.isfinite(number) and kind == "NUMBER_DOUBLE" else None
    return None
