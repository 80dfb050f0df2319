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
        ("a: " + "[" * 50_000, "not YAML: it is nested in more than 200 levels"),
        (f"a: {'9' * 5000}", "not YAML: a value cannot be read"),
        ("a: 2024-13-45", "not YAML: a value cannot be read: month must be in 1..12"),
        ("a: 1\n\tb: 2", "not YAML: "),
    ],
)
def test_files_that_are_no_pipeline(tmp_path: pathlib.Path, text: str | None, said: str) -> None:
    path = tmp_path / "file.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as refused:
        load(path)
    assert said in str(refused.value) and str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["NUMBER_INTEGER", "NUMBER_DOUBLE"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "9" * 5000])
def test_no_store_holds_such_a_number(kind: str, value: str) -> None:
    with pytest.raises(UserError) as refused:
        with_parameters(n={"parameterType": kind}).arguments({"n": value})
    assert str(refused.value).startswith("--parameter n=") and len(str(refused.value)) < 200


def test_whole_numbers_are_of_64_bits() -> None:
    document = with_parameters(n={"parameterType": "NUMBER_INTEGER"})
    for value in (str(2**63), "-1e19", "1e300"):
        with pytest.raises(UserError, match="expected an integer"):
            document.arguments({"n": value})
    assert document.arguments({"n": "1e3"}) == {"n": 1000}
    doubles = with_parameters(n={"parameterType": "NUMBER_DOUBLE"})
    assert doubles.arguments({"n": "1e300"}) == {"n": 1e300}


@pytest.mark.parametrize(
    "address", ["s3://key:c4n4ry@bucket/x", "https://host/x?X-Amz-Signature=c4n4ry"]
)
def test_no_parameter_holds_credentials(address: str) -> None:
    document = with_parameters(data_source={"parameterType": "STRING"})
    with pytest.raises(UserError) as refused:
        document.arguments({"data_source": address})
    assert str(refused.value).startswith("--parameter data_source: ")
    assert "c4n4ry" not in str(refused.value)


def test_a_list_is_read_as_settings_are() -> None:
    document = with_parameters(a={"parameterType": "LIST"})
    assert document.arguments({"a": "[1, 2024-01-01]"}) == {"a": [1, "2024-01-01"]}
    for text in ("[" * 20_000, "[" + "9" * 5000 + "]", "{a: 1, a: 2}"):
        with pytest.raises(UserError, match="expected a list"):
            document.arguments({"a": text})
