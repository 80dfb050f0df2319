"""Which artifacts of a run the page is about, whatever its nodes are called; what it imports."""

import subprocess
import sys

import pytest
from tfx.types import standard_artifacts

from stagecraft.pipeline.history import report


def artifact(kind, number):
    found = kind()
    found.id = number
    return found


def test_roles_by_type():
    examples, again = (artifact(standard_artifacts.Examples, number) for number in (1, 9))
    schema = artifact(standard_artifacts.Schema, 2)
    baseline, model = (artifact(standard_artifacts.Model, number) for number in (0, 5))
    found = report._by_type(
        {
            "Transform": {"transformed_examples": [again]},
            "FileBasedExampleGen": {"examples": [examples]},
            "SchemaGen": {"schema": [schema]},
            "Baseline": {"model": [baseline]},
            "MyTrainer": {"model": [model]},
        }
    )
    assert found == {"examples": examples, "schema": schema, "model": model}


@pytest.mark.slow
def test_of_the_large_libraries_only_tensorflow_is_imported():
    code = (
        "import sys; from stagecraft.components.report.pages import page; "
        "from stagecraft.pipeline.history import report; "
        "large = ('apache_beam', 'kubernetes', 'tensorflow_data_validation', "
        "'tensorflow_model_analysis', 'tensorflow'); print(*set(large) & sys.modules.keys())"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.split() == ["tensorflow"]
