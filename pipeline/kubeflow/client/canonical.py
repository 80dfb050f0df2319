"""Compares compiled pipelines as the server stores them."""

from __future__ import annotations

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from stagecraft.pipeline.kubeflow.document import Document
from stagecraft.pipeline.kubeflow.spec import Json, doubles


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
