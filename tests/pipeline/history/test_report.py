"""Which artifacts of a run the page is about, whatever its nodes are called."""

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
