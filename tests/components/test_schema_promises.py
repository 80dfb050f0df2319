"""What a schema or a setting names has an effect, or is refused."""

import pytest
from artifacts import artifact
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from stagecraft.common.errors import UserError
from stagecraft.components.anomaly_gate.drift import Limits
from stagecraft.components.anomaly_gate.executor import Executor as Gate
from stagecraft.components.evaluator.component import Executor as Evaluator
from stagecraft.components.evaluator.eval_config import make_eval_config
from stagecraft.components.import_schema import ImportSchema
from stagecraft.schemas.features import MissingFeatureError
from stagecraft.trainer_module.settings import TaskSettings

FEATURE = 'feature { name: "town" type: BYTES %s }'
COMPARATORS = {
    "drift_comparator": (
        "town",
        FEATURE % "drift_comparator { jensen_shannon_divergence { threshold: 0.1 } }",
    ),
    "skew_comparator": ("town", FEATURE % "skew_comparator { infinity_norm { threshold: 0.1 } }"),
    "num_examples_drift_comparator": (
        "dataset_constraints",
        FEATURE % ""
        + "dataset_constraints { num_examples_drift_comparator { min_fraction_threshold: 1 } }",
    ),
    "nested": (
        "street",
        'feature { name: "place" type: STRUCT struct_domain { '
        'feature { name: "street" skew_comparator { infinity_norm { threshold: 0.1 } } } } }',
    ),
}


@pytest.mark.parametrize("name", COMPARATORS)
def test_a_comparator_is_refused(name, tmp_path):
    record, text = COMPARATORS[name]
    file = tmp_path / "schema" / "schema.pbtxt"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        ImportSchema(str(file))
    assert (caught.value.file, caught.value.record) == (str(file), record)
    inputs = {
        "examples": [artifact(standard_artifacts.Examples, tmp_path)],
        "statistics": [artifact(standard_artifacts.ExampleStatistics, tmp_path)],
        "schema": [artifact(standard_artifacts.Schema, file.parent)],
    }
    with pytest.raises(UserError) as caught:
        Gate().Do(inputs, {}, {})
    assert (caught.value.file, caught.value.record) == (str(file), record)


@pytest.mark.parametrize(
    ("name", "limits", "setting"),
    [
        ("drift_comparator", Limits(skew=0.3), "drift.max_distance"),
        ("skew_comparator", Limits(drift=0.3, features={"town": 0.1}), "drift.max_skew"),
        ("num_examples_drift_comparator", Limits(0.3, 0.3), ""),
        ("drift_comparator", Limits(features={"town": 0.1}), None),
        ("skew_comparator", Limits(skew=0.3), None),
    ],
)
def test_a_comparator_needs_the_comparison_of_its_kind(name, limits, setting, tmp_path):
    record, text = COMPARATORS[name]
    file = tmp_path / "schema.pbtxt"
    file.write_text(text)
    if setting is None:
        ImportSchema(str(file), limits.comparators)
        return
    with pytest.raises(UserError) as caught:
        ImportSchema(str(file), limits.comparators)
    assert (caught.value.record, caught.value.setting) == (record, setting)


def test_a_slice_that_no_feature_has_is_refused(tmp_path):
    file = tmp_path / "schema" / "schema.pbtxt"
    file.parent.mkdir()
    file.write_text(FEATURE % "")
    schema = [artifact(standard_artifacts.Schema, file.parent)]
    config = make_eval_config(
        task=TaskSettings(
            name="regression", args={"features": {"town": "hashed"}, "label": "price"}
        ),
        not_worse=False,
        better_than_constant=False,
        slices=["town", "twon"],
    )
    properties = {"eval_config": proto_utils.proto_to_json(config)}
    with pytest.raises(MissingFeatureError) as caught:
        Evaluator().Do({"schema": schema}, {}, properties)
    assert caught.value.missing == ("twon",)
    inputs = {
        "examples": [artifact(standard_artifacts.Examples, tmp_path)],
        "statistics": [artifact(standard_artifacts.ExampleStatistics, tmp_path)],
        "schema": schema,
    }
    with pytest.raises(MissingFeatureError) as caught:
        Gate().Do(inputs, {}, {"needs": '["twon"]'})
    assert caught.value.missing == ("twon",)
