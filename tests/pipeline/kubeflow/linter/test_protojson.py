"""The tables of fields, against the protos that are installed; and quantities."""

from decimal import Decimal

import pytest

from stagecraft.common import kubernetes_syntax
from stagecraft.pipeline.kubeflow.linter.protojson import ENUMS, KUBERNETES, PIPELINE

SCALARS = {"string", "bool", "int", "double", "Struct", "Value", "Duration"}
RENAMED = {
    "ComponentInputsSpec.ArtifactSpec": "InputArtifact",
    "ComponentInputsSpec.ParameterSpec": "InputParameter",
    "ComponentOutputsSpec.ArtifactSpec": "OutputArtifact",
    "ComponentOutputsSpec.ParameterSpec": "OutputParameter",
    "ArtifactIteratorSpec.ItemsSpec": "ArtifactItems",
    "ParameterIteratorSpec.ItemsSpec": "ParameterItems",
    "Value": "LegacyValue",
}
"""Our names for messages whose own are not unique."""


@pytest.mark.parametrize("table", [PIPELINE, KUBERNETES], ids=["pipeline", "kubernetes"])
def test_every_type_is_defined(table):
    known = SCALARS | set(ENUMS) | set(table)
    for message, fields in table.items():
        for field, kind in fields.items():
            assert kind.strip("[]{}") in known, f"{message}.{field}: {kind}"


def _repeated(field):
    if hasattr(field, "is_repeated"):
        return field.is_repeated
    return field.label == field.LABEL_REPEATED  # deprecated in later protobufs


def test_nothing_that_the_installed_proto_has_is_missing():
    """The table is newer than it: more is allowed, less is not."""
    pb2 = pytest.importorskip("kfp.pipeline_spec.pipeline_spec_pb2")
    todo = [pb2.PipelineSpec.DESCRIPTOR, pb2.PipelineDeploymentConfig.DESCRIPTOR]
    seen = set()
    while todo:
        message = todo.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        path = message.full_name.removeprefix("ml_pipelines.")
        fields = PIPELINE[RENAMED.get(path, message.name)]
        for field in message.fields:
            kind = fields[field.json_name]
            nested = field.message_type
            is_map = nested is not None and nested.GetOptions().map_entry
            if is_map:
                nested = nested.fields_by_name["value"].message_type
            assert (kind[0] == "{") == is_map, (path, field.json_name)
            assert (kind[0] == "[") == (_repeated(field) and not is_map), (path, field.json_name)
            if nested is not None and nested.full_name.startswith("ml_pipelines."):
                inner = nested.full_name.removeprefix("ml_pipelines.")
                assert kind.strip("[]{}") == RENAMED.get(inner, nested.name), (path, field.name)
                todo.append(nested)
    assert len(seen) > 30


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", 1),
        ("500m", "0.5"),
        (".5", "0.5"),
        ("2.", 2),
        ("16.5G", 16_500_000_000),
        ("1.5Gi", 1.5 * 2**30),
        ("1e3", 1000),
        ("2E-1", "0.2"),
        ("3E", 3 * 10**18),
        ("-1k", -1000),
    ],
)
def test_quantities(text, amount):
    assert kubernetes_syntax.parse_quantity(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "G", "16GB", "1 Gi", "1gi", "one", "1K", "1e", "0x1"])
def test_no_quantities(text):
    assert kubernetes_syntax.parse_quantity(text) is None
