"""A compiled pipeline as it is read: its parameters, and files that are none."""

import pytest

from stagecraft.common.errors import SettingError, UserError
from stagecraft.pipeline.kubeflow.document import Document, load


def with_parameters(**parameters):
    return Document({"root": {"inputDefinitions": {"parameters": parameters}}}, {})


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"texd": "a"}, "texd"),
        ({"text": "a"}, "number"),
        ({"number": "many"}, "number=many"),
        ({"number": "true"}, "number=true"),
    ],
)
def test_parameters_are_checked(values, refused):
    document = with_parameters(
        text={"parameterType": "STRING", "defaultValue": "a"},
        number={"parameterType": "NUMBER_INTEGER"},
    )
    with pytest.raises(SettingError) as caught:
        document.arguments(values)
    assert (caught.value.setting, caught.value.value) == ("--parameter", refused)


def test_a_span_is_checked():
    """A schedule would fail each day."""
    document = with_parameters(data_span={"parameterType": "STRING", "defaultValue": "latest"})
    for span in ("latest", "7", "2026-11-27"):
        assert document.arguments({"data.span": span}) == {"data_span": span}
    with pytest.raises(SettingError) as caught:
        document.arguments({"data.span": "tomorow"})
    assert (caught.value.setting, caught.value.value) == ("--parameter", "tomorow")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "a: [",
        "a: 1",
        "a: " + "[" * 50_000,
        f"a: {'9' * 5000}",
        "a: 2024-13-45",
        "a: 1\n\tb: 2",
    ],
    ids=range(7),
)
def test_files_without_a_pipeline(tmp_path, text):
    path = tmp_path / "file.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError) as refused:
        load(path)
    assert refused.value.file == str(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["NUMBER_INTEGER", "NUMBER_DOUBLE"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "9" * 5000])
def test_no_store_holds_such_a_number(kind, value):
    with pytest.raises(SettingError) as refused:
        with_parameters(n={"parameterType": kind}).arguments({"n": value})
    assert str(refused.value.value).startswith("n=") and len(str(refused.value)) < 200


def test_whole_numbers_are_of_64_bits():
    document = with_parameters(n={"parameterType": "NUMBER_INTEGER"})
    for value in (str(2**63), "-1e19", "1e300"):
        with pytest.raises(SettingError, match="not an integer"):
            document.arguments({"n": value})
    assert document.arguments({"n": "1e3"}) == {"n": 1000}
    doubles = with_parameters(n={"parameterType": "NUMBER_DOUBLE"})
    assert doubles.arguments({"n": "1e300"}) == {"n": 1e300}


@pytest.mark.parametrize(
    "address", ["s3://key:c4n4ry@bucket/x", "https://host/x?X-Amz-Signature=c4n4ry"]
)
def test_no_parameter_holds_credentials(address):
    document = with_parameters(data_source={"parameterType": "STRING"})
    with pytest.raises(UserError) as refused:
        document.arguments({"data_source": address})
    assert str(refused.value).startswith("--parameter data_source: ")
    assert "c4n4ry" not in str(refused.value)


def test_a_list_is_read_as_settings_are():
    document = with_parameters(a={"parameterType": "LIST"})
    assert document.arguments({"a": "[1, 2024-01-01]"}) == {"a": [1, "2024-01-01"]}
    for text in ("[" * 20_000, "[" + "9" * 5000 + "]", "{a: 1, a: 2}"):
        with pytest.raises(SettingError, match="not a list"):
            document.arguments({"a": text})
