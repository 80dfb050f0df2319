from __future__ import annotations

import pathlib

import pytest

from stagecraft.schemas.errors import UserError
from stagecraft.schemas.features import DATASETS
from stagecraft.trainer_module.data.labels import class_names


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=list(DATASETS))
def test_our_schemas_name_the_classes_of_the_data_sets(dataset):
    assert class_names(dataset.schema_file) == dataset.label_names


LABEL = 'feature { name: "label" type: INT int_domain { min: 0 max: 2 } }\n'


def _schema(folder: pathlib.Path, text: str) -> str:
    path = folder / "schema.pbtxt"
    path.write_text(text)
    return str(path)


def test_names_come_from_the_schemas_own_domain(tmp_path):
    names = 'string_domain { name: "label_names" value: "a" value: "b" value: "c" }'
    other = 'string_domain { name: "colours" value: "red" }\n'
    assert class_names(_schema(tmp_path, LABEL + other + names)) == ("a", "b", "c")


def test_without_names_classes_are_numbered(tmp_path):
    assert class_names(_schema(tmp_path, LABEL)) == ("0", "1", "2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('feature { name: "image" }', "no feature 'label' \\(features: image\\)"),
        ("", "no feature 'label' \\(features: none\\)"),
        ('feature { name: "label" type: INT }', "needs its range"),
        ('feature { name: "label" int_domain { min: 0 } }', "needs its range"),
        ('feature { name: "label" int_domain { min: 1 max: 10 } }', "counted from 0"),
        (LABEL + 'string_domain { name: "label_names" value: "a" }', "1 names, but .* 3 values"),
        ("feature: 3 {", "not a schema in text form"),
    ],
)
def test_a_schema_that_does_not_say_is_refused(tmp_path, text, message):
    path = _schema(tmp_path, text)
    with pytest.raises(UserError, match=message) as error:
        class_names(path)
    assert path in str(error.value)


def test_a_missing_schema_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.pbtxt: cannot read the schema"):
        class_names(str(tmp_path / "nowhere.pbtxt"))
