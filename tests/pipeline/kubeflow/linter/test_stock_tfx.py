"""What TFX's own Kubeflow runner writes, and all that keeps the backend from running it."""

import json
from collections import Counter

import compiled_by
import pytest

from stagecraft.pipeline.kubeflow.linter import check

WITH_INPUTS = 6
"""StatisticsGen, SchemaGen, Transform, Trainer, Evaluator, Pusher; ExampleGen has none."""

ALWAYS = {
    "executor-kind": 2,  # a LatestBlessedModelStrategy is two resolvers
    "tfx-input-type": WITH_INPUTS,
    "tfx-uri": 1,
    "lifecycle-ignored": 1,
    "argo-name": 2,
}
EXPECTED = {
    # under 2.0 no constant is one: each parameter of each task is refused
    ("2.0", "json"): {
        "pipeline-job": 1,
        "schema-version": 1,
        "runtime-value": ...,
        "parameter-type": 2,
    },
    ("2.1", "json"): {"pipeline-job": 1},
    ("2.1", "yaml"): {},
}


@pytest.mark.parametrize(("version", "extension"), EXPECTED)
def test_exactly_these_rules(tmp_path, version, extension):
    compiled_by.stock(compiled_by.points(), tmp_path, f"stock.{extension}", version)
    text = (tmp_path / f"stock.{extension}").read_text()
    found = check(text)
    expected = ALWAYS | EXPECTED[version, extension]
    if expected.get("runtime-value") is ...:
        expected["runtime-value"] = text.count("constantValue")
        assert expected["runtime-value"] > 15
    assert Counter(finding.rule for finding in found) == expected
    # As in TFX's own template, an ID has underscores.
    names = {finding.location for finding in found if finding.rule == "argo-name"}
    prefix = "pipelineSpec." if extension == "json" else ""
    assert names == {
        f"{prefix}root.dag.tasks.latest_blessed_model_resolver-{kind}-resolver"
        for kind in ("model", "model-blessing")
    }
    assert all(finding.location.startswith(prefix) for finding in found[extension == "json" :])


def test_two_formats_that_exclude_each_other(tmp_path):
    """TFX itself cannot write a run-time parameter into 2.0 YAML."""
    with pytest.raises(KeyError, match="parameterType"):
        compiled_by.stock(compiled_by.points(), tmp_path, version="2.0")


def test_the_job_of_the_json_is_the_spec_of_the_yaml(tmp_path):
    compiled_by.stock(compiled_by.points(), tmp_path, "stock.json")
    compiled_by.stock(compiled_by.points(), tmp_path)
    job = json.loads((tmp_path / "stock.json").read_text())
    inner = check(json.dumps(job["pipelineSpec"]))
    assert inner == check((tmp_path / "stock.yaml").read_text())
