"""A compiled pipeline as it is read: its parameters, and files that are none."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from stagecraft.pipeline.kubeflow.document import Document, load
from stagecraft.schemas.errors import UserError


def with_parameters(**parameters: Any) -> Document:
    return Document({"root": {"inputDefinitions": {"parameters": parameters}}}, {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"texd": "a"},
            "--parameter texd: the pipeline has no such parameter; it has number, text",
        ),
        ({"text": "a"}, "number: give it with --parameter; it has no default"),
        ({"number": "many"}, "--parameter number=many: expected an integer"),
        ({"number": "true"}, "--parameter number=true: expected an integer"),
    ],
)
def test_parameters_are_checked(given: dict[str, str], said: str) -> None:
    document = with_parameters(
        text={"parameterType": "STRING", "defaultValue": "a"},
        number={"parameterType": "NUMBER_INTEGER"},
    )
    with pytest.raises(UserError) as refused:
        document.arguments(given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("a: [", "not YAML"),
        ("a: 1", "holds 0 pipelines"),
    ],
)
def test_files_that_are_no_pipeline(tmp_path: pathlib.Path, text: str | None, said: str) -> None:
    path = tmp_path / "file.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as refused:
        load(path)
    assert said in str(refused.value) and str(path) in str(refused.value)
