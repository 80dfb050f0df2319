"""Splits a file into the pipeline document, the platform document, and others."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from stagecraft.pipeline.kubeflow import spec as specs
from stagecraft.pipeline.kubeflow.linter.finding import Finding
from stagecraft.pipeline.kubeflow.linter.protojson import PIPELINE, Reader

_NEW = "backend/src/apiserver/template/v2_template.go NewV2SpecTemplate"
_IS_PIPELINE = "backend/src/apiserver/template/template.go isPipelineSpec"
_PIPELINE_KEYS = {"pipelineInfo", "pipeline_info", "root", "components", "schemaVersion"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")

SCHEMA_VERSION = "2.1.0"


@dataclasses.dataclass
class File:
    """The documents of a file."""

    pipeline: dict[str, Any] | None = None
    prefix: str = ""
    """Prefix of locations in a pipeline that is part of a document."""

    platform: dict[str, Any] | None = None


class _Loader(specs.FASTEST):
    """Reads like Go's yaml.v3: no yes/no, no dates, no duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is a duplicate key", key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first)
    )


def read(text: str) -> tuple[File, list[Finding]]:
    """The documents of a file, and findings about them."""
    file = File()
    return file, list(_read(text, file))


def _read(text: str, file: File) -> Iterator[Finding]:
    try:
        documents = _documents(text)
    except yaml.YAMLError as error:
        yield Finding(
            "not-yaml",
            "file",
            f"The upload is refused: the file is not YAML ({' '.join(str(error).split())}).",
            "Correct the YAML, or compile again.",
            _NEW,
        )
        return
    for number, document in enumerate(documents, start=1):
        location = f"document {number}"
        if document is None:
            continue
        if not isinstance(document, dict):
            yield Finding(
                "not-a-mapping",
                location,
                "The upload is refused: each document must be a mapping.",
                "Remove the document.",
                _NEW,
            )
            continue
        inner = document.get("pipelineSpec", document.get("pipeline_spec"))
        if isinstance(inner, dict):
            yield Finding(
                "pipeline-job",
                location,
                "The upload is refused as an unknown template format: this is a PipelineJob, and "
                "the backend expects a PipelineSpec; JSON is allowed.",
                "Upload the content of pipelineSpec, and set the values of runtimeConfig when you "
                "start a run.",
                _IS_PIPELINE,
            )
            file.prefix = "pipelineSpec."
            document = inner
        if isinstance(inner, dict) or _PIPELINE_KEYS & document.keys():
            what = "pipeline"
        elif isinstance(document.get("platforms"), dict) and "kubernetes" in document["platforms"]:
            what = "platform"
        else:
            yield Finding(
                "document-ignored",
                location,
                "The backend silently ignores it: it is neither a pipeline spec nor a platform "
                "spec with platforms.kubernetes.",
                "Remove the document, or make it one of the two.",
                _NEW,
            )
            continue
        if getattr(file, what) is None:
            setattr(file, what, document)
        else:
            yield Finding(
                f"several-{what}s",
                location,
                f"The upload is refused: the file has a {what} spec before this one, and only "
                "one is allowed.",
                "Keep one of them in the file.",
                _NEW,
            )
    if file.pipeline is None:
        yield Finding(
            "no-pipeline",
            "file",
            "The upload is refused as an unknown template format: the file has no pipeline spec.",
            "Put a compiled pipeline into the file.",
            "backend/src/apiserver/template/template.go inferTemplateFormat",
        )


def parse_pipeline(document: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """The pipeline spec as the backend reads it, and findings."""
    reader = Reader(PIPELINE)
    spec = reader.read("PipelineSpec", document)
    findings = [
        Finding(
            "unknown-field" if wrong.unknown else "malformed-field",
            wrong.location,
            f"The upload is refused as an unknown template format: {wrong.problem}.",
            "Remove the field." if wrong.unknown else "Use the type of pipeline_spec.proto.",
            _IS_PIPELINE,
        )
        for wrong in reader.wrong
    ]
    return spec, [*findings, *_head(spec)]


def _head(spec: dict[str, Any]) -> Iterator[Finding]:
    version = spec.get("schemaVersion", "")
    if version != SCHEMA_VERSION:
        yield Finding(
            "schema-version",
            "schemaVersion",
            f"The upload is refused: the backend accepts schema version {SCHEMA_VERSION}, "
            f"not {version or 'none'}.",
            "Compile with use_pipeline_spec_2_1=True.",
            _NEW,
        )
    name = spec.get("pipelineInfo", {}).get("name", "")
    problem, source = "", _NEW
    if not name:
        problem = "The upload is refused as an unknown template format: the pipeline has no name."
        source = _IS_PIPELINE
    elif not _NAME.fullmatch(name):
        problem = (
            f"The upload is refused: {name!r} is not a name of at most 128 lower-case letters, "
            "digits and '-' that begins with a letter or digit."
        )
        source = "backend/src/apiserver/common/utils.go ValidatePipelineName"
    if problem:
        remedy = "Name it in lower-case letters, digits and hyphens."
        remedy = remedy if name else "Give the pipeline a name."
        yield Finding("pipeline-name", "pipelineInfo.name", problem, remedy, source)
    if "root" not in spec:
        yield Finding(
            "root-missing",
            "root",
            "The upload is refused as an unknown template format: the root component is missing.",
            "Put the tasks under root.dag.tasks.",
            _IS_PIPELINE,
        )


def _documents(text: str) -> list[Any]:
    if text.lstrip()[:1] == "{":
        try:
            return [json.loads(text)]
        except (ValueError, RecursionError):
            pass  # a mapping in YAML's flow style
    return specs.load_all(text, _Loader)
