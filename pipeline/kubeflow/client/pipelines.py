"""Uploaded pipelines and their versions."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import tempfile
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from stagecraft.common.errors import UserError
from stagecraft.pipeline.kubeflow import document as documents, linter
from stagecraft.pipeline.kubeflow.client.api import Api, name_filter
from stagecraft.pipeline.kubeflow.client.errors import ApiError, NotFoundError
from stagecraft.pipeline.kubeflow.client.objects import Pipeline, Version
from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.spec import Json, doubles

_NEWEST_FIRST = "created_at desc"


class Uploaded(NamedTuple):
    """The result of an upload."""

    pipeline: Pipeline
    version: Version
    changed: bool
    """False: the newest version was the same."""


def every(api: Api) -> list[Pipeline]:
    """All pipelines: in a multi-user Kubeflow, those of the user's namespace and shared ones."""
    found = {
        pipeline.id: pipeline
        for namespace in _namespaces(api)
        for pipeline in map(
            Pipeline.of,
            api.pages("list_pipelines", "pipelines", namespace=namespace, sort_by=_NEWEST_FIRST),
        )
    }
    return list(found.values())


def find(api: Api, name: str, *, shared: bool = True) -> Pipeline | None:
    """The pipeline of a name or an ID; None: it does not exist.

    Args:
        name: or ID.
        shared: whether to find names of pipelines that all users share. Changing a shared pipeline
            requires its ID, so that nobody changes it by mistake.
    """
    if _is_id(name):
        with contextlib.suppress(NotFoundError):
            return Pipeline.of(api.call("get_pipeline", pipeline_id=name))
    for namespace in _namespaces(api)[: None if shared else 1]:
        answers = api.pages(
            "list_pipelines", "pipelines", namespace=namespace, filter=name_filter(name)
        )
        found = list(map(Pipeline.of, answers))
        if len(found) > 1:
            ids = ", ".join(pipeline.id for pipeline in found)
            raise UserError(f"{name}: {len(found)} pipelines have this name; give an ID: {ids}.")
        if found:
            return found[0]
    return None


def get(api: Api, name: str) -> Pipeline:
    """The pipeline of a name or an ID."""
    pipeline = find(api, name)
    if pipeline is None:
        raise UserError(
            f"{name}: this pipeline does not exist; see 'stagecraft kubeflow pipelines list'."
        )
    return pipeline


def versions(api: Api, pipeline: Pipeline) -> list[Version]:
    """Versions of a pipeline, newest first."""
    answers = api.pages(
        "list_pipeline_versions",
        "pipeline_versions",
        pipeline_id=pipeline.id,
        sort_by=_NEWEST_FIRST,
    )
    return [Version.of(answer) for answer in answers]


def version(api: Api, pipeline: Pipeline, name: str | None = None) -> Version:
    """The version of a name or an ID; default: the newest one."""
    known = versions(api, pipeline)
    for one in known:
        if name is None or name in (one.id, one.name):
            return one
    raise UserError(
        f"{pipeline.name}: has no version{'' if name is None else ' ' + name} (versions: "
        f"{', '.join(one.name for one in known) or 'none'})."
    )


def create(api: Api, file: pathlib.Path, name: str | None = None) -> Uploaded:
    """Uploads a new pipeline; an equal existing pipeline is no error."""
    document = _checked(file)
    name = name or document.name
    pipeline = find(api, name, shared=False)
    if pipeline is None:
        with _as_yaml(file) as path:
            try:
                answer = api.call(
                    "upload_pipeline",
                    pipeline_package_path=path,
                    pipeline_name=name,
                    description=_description(document),
                    namespace=api.namespace,
                )
                pipeline = Pipeline.of(answer)
                return Uploaded(pipeline, version(api, pipeline), True)
            except ApiError as error:
                # Another client created it, or a pipeline that this user cannot see has the name.
                if error.status != 409 or (pipeline := find(api, name, shared=False)) is None:
                    raise
    newest = versions(api, pipeline)[:1]
    if newest and same(newest[0].document, document):
        return Uploaded(pipeline, newest[0], False)
    raise UserError(
        f"{name}: another pipeline has this name. Add a version to it with 'stagecraft kubeflow "
        f"pipelines update {file}', or upload with another --name.",
        setting="--name",
        value=name,
    )


def update(
    api: Api, file: pathlib.Path, name: str | None = None, version_name: str | None = None
) -> Uploaded:
    """Adds a version to a pipeline, unless its newest version is equal."""
    document = _checked(file)
    pipeline = find(api, name or document.name, shared=False)
    if pipeline is None:
        raise UserError(
            f"{name or document.name}: this pipeline does not exist; 'stagecraft kubeflow "
            f"pipelines create {file}' creates it."
        )
    newest = versions(api, pipeline)[:1]
    if newest and same(newest[0].document, document) and version_name in (None, newest[0].name):
        return Uploaded(pipeline, newest[0], False)
    now = datetime.datetime.now(datetime.timezone.utc)
    with _as_yaml(file) as path:
        answer = api.call(
            "upload_pipeline_version",
            pipeline_package_path=path,
            pipeline_version_name=version_name or f"{pipeline.name}-{now:%Y%m%d-%H%M%S}",
            pipeline_id=pipeline.id,
            description=_description(document),
        )
    return Uploaded(pipeline, Version.of(answer), True)


def delete(api: Api, pipeline: Pipeline) -> list[Version]:
    """Deletes a pipeline's versions, then the pipeline, as servers require; returns versions."""
    gone = versions(api, pipeline)
    for one in gone:
        with contextlib.suppress(NotFoundError):  # another client deleted it
            api.call("delete_pipeline_version", pipeline_id=pipeline.id, pipeline_version_id=one.id)
    with contextlib.suppress(NotFoundError):
        api.call("delete_pipeline", pipeline_id=pipeline.id)
    return gone


def same(one: Document, other: Document) -> bool:
    """Whether the server would store both alike."""
    return _canonical(one) == _canonical(other)


def _canonical(document: Document) -> Json:
    """The stored form: ``V2Spec.Bytes`` in apiserver/template/v2_template.go."""
    try:
        message = json_format.ParseDict(document.spec, pipeline_spec_pb2.PipelineSpec())
        spec = json_format.MessageToDict(message)
    except json_format.ParseError:  # a field that this version of kfp does not know
        spec = document.spec
    return doubles({"spec": spec, "executors": document.executors})


def _namespaces(api: Api) -> list[str | None]:
    """Namespaces to search; None: pipelines that all users share."""
    return [api.namespace, None] if api.multi_user else [None]


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _checked(file: pathlib.Path) -> Document:
    """Reads a file, and lints it: the server's messages say little."""
    document = documents.load(file)
    if findings := linter.check(file.read_text()):
        raise UserError(linter.refusal(str(file), findings), file=str(file))
    return document


@contextlib.contextmanager
def _as_yaml(file: pathlib.Path) -> Iterator[str]:
    """A copy with the file name that the server requires."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "pipeline.yaml"
        copy.write_bytes(file.read_bytes())
        yield str(copy)


def _description(document: Document) -> str:
    return str(document.spec["pipelineInfo"].get("description", ""))
