"""Properties of artifacts as ML Metadata and Kubeflow keep them."""

import copy

from tfx.types import standard_artifacts

from stagecraft.components.metadata import run_metadata


def test_values_of_both_kinds():
    examples = standard_artifacts.Examples()
    examples.set_int_custom_property("version", 2)
    examples.set_json_value_custom_property("span", 20758)
    examples.set_json_value_custom_property("shares", {"train": 0.8})
    examples.span = 3
    examples.version = 1
    stored = copy.deepcopy(examples.mlmd_artifact)
    found = run_metadata.of_artifact(stored)
    assert (found["version"], found["span"]) == (2, 20758)
    del stored.custom_properties["span"]
    assert run_metadata.of_artifact(stored)["span"] == 3
    assert dict(found["shares"]) == {"train": 0.8}
