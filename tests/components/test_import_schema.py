"""ImportSchema: cached by content, and clear about a file that is no schema."""

import pathlib

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.types import standard_artifacts

from stagecraft.common.errors import UserError
from stagecraft.components.import_schema import Executor, ImportSchema
from stagecraft.schemas import features

SCHEMA = 'feature { name: "label" type: INT int_domain { min: 0 max: 9 } }\n'


def _text(path: pathlib.Path | str) -> str:
    return ImportSchema(schema_file=str(path)).exec_properties["schema_text"]


def test_its_content_is_the_cache_key(tmp_path):
    (tmp_path / "a.pbtxt").write_text(SCHEMA)
    (tmp_path / "b.pbtxt").write_text("# the classes\n" + SCHEMA.replace(" ", "\n"))
    (tmp_path / "c.pbtxt").write_text(SCHEMA.replace("9", "99"))
    component = ImportSchema(schema_file=str(tmp_path / "a.pbtxt"))
    assert set(component.exec_properties) == {"schema_text"}  # the path is not in the key
    assert _text(tmp_path / "a.pbtxt") == _text(tmp_path / "b.pbtxt") != _text(tmp_path / "c.pbtxt")


@pytest.mark.parametrize("name", features.DATASETS)
def test_writes_the_schema(tmp_path, name):
    source = features.DATASETS[name].schema_file
    artifact = standard_artifacts.Schema()
    artifact.uri = str(tmp_path)
    Executor().Do({}, {"schema": [artifact]}, {"schema_text": _text(source)})
    written = (tmp_path / "schema.pbtxt").read_text()
    assert text_format.Parse(written, schema_pb2.Schema()) == text_format.Parse(
        pathlib.Path(source).read_text(), schema_pb2.Schema()
    )


@pytest.mark.parametrize(
    ("content", "line", "token"),
    [
        (None, "", "[Nn]o such file"),
        (SCHEMA + "feature { nmae: 'id' }\n", "2", "nmae"),
        (SCHEMA + "feature { type: INTEGER }", "2", "INTEGER"),
        ("feature {", "1", "not a schema"),
        ("", "", "no features"),
        (b"\xff\x00", "", "binary data"),
    ],
)
def test_a_file_that_is_not_a_schema(tmp_path, content, line, token):
    path = tmp_path / "schema.pbtxt"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=token) as caught:
        ImportSchema(schema_file=str(path))
    assert (caught.value.file, caught.value.record) == (str(path), line)


def test_a_folder_is_not_a_schema(tmp_path):
    with pytest.raises(UserError, match="[Dd]irectory") as caught:
        ImportSchema(schema_file=str(tmp_path))
    assert caught.value.file == str(tmp_path)
