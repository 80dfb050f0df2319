import pathlib

import pytest

from stagecraft.common.errors import UserError
from stagecraft.schemas.features import DATASETS
from stagecraft.trainer_module.data.schema_reader import class_names


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
    ("text", "record"),
    [
        ('feature { name: "image" }', "label"),
        ("", "label"),
        ('feature { name: "label" type: INT }', "label"),
        ('feature { name: "label" int_domain { min: 0 } }', "label"),
        ('feature { name: "label" int_domain { min: 1 max: 10 } }', "label"),
        (LABEL + 'string_domain { name: "label_names" value: "a" }', "label_names"),
        ("feature: 3 {", ""),
        (None, ""),
    ],
    ids=["other", "none", "type", "max", "min", "names", "syntax", "missing"],
)
def test_a_schema_without_classes_is_refused(tmp_path, text, record):
    path = str(tmp_path / "none.pbtxt") if text is None else _schema(tmp_path, text)
    with pytest.raises(UserError) as caught:
        class_names(path)
    assert (caught.value.file, caught.value.record) == (path, record)
