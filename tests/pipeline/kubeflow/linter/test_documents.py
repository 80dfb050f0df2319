"""Which documents are taken, and how they are read."""

import copy
import json

import pytest

from stagecraft.pipeline.kubeflow.linter import check, check_file
from stagecraft.pipeline.kubeflow.linter.documents import File


def _found(text):
    return [(found.rule, found.location) for found in check(text)]


def test_json_of_a_bare_spec_is_accepted(sample):
    assert check(json.dumps(sample.pipeline)) == []
    assert check(json.dumps(sample.pipeline, indent="\t")) == []


def test_a_pipeline_job_is_not_and_is_looked_into(sample):
    sample.pipeline["schemaVersion"] = "2.0.0"
    job = {"displayName": "x", "pipelineSpec": sample.pipeline, "runtimeConfig": {}}
    assert _found(json.dumps(job)) == [
        ("pipeline-job", "document 1"),
        ("schema-version", "pipelineSpec.schemaVersion"),
    ]


@pytest.mark.parametrize("text", ["", "---\n", "a: 1", "[1, 2]", "just text"])
def test_no_pipeline(text):
    assert _found(text)[-1] == ("no-pipeline", "file")


@pytest.mark.parametrize(
    "text", ["a: [1", "a: 1\na: 2", "\tx", "a: *b", "[" * 50_000, f"a: {'9' * 5000}"]
)
def test_no_yaml(text):
    assert _found(text) == [("not-yaml", "file")]


def test_a_second_pipeline_and_a_second_platform(sample):
    sample.more = [sample.pipeline, sample.platform]
    assert _found(sample.text) == [
        ("several-pipelines", "document 3"),
        ("several-platforms", "document 4"),
    ]


def test_other_documents(sample):
    sample.more = [{"settings": {}}, None, ["a"]]
    assert _found(sample.text) == [
        ("document-ignored", "document 3"),
        ("not-a-mapping", "document 5"),
    ]


def test_without_a_platform_document(sample):
    sample.platform = None
    assert check(sample.text) == []


def test_anchors_and_merges(sample):
    text = sample.text + "---\na: &x {b: 1}\nc: {<<: *x, d: 2}\n"
    assert _found(text) == [("document-ignored", "document 3")]


def test_yaml_is_read_as_go_does(sample):
    """yaml.v3 takes yes and dates for text, and 1e3 for a number."""
    parameters = sample.components["train"]["inputDefinitions"]["parameters"]
    del parameters["mode"]["literals"]
    head, _, rest = sample.text.partition("constant: fast")
    assert check(f"{head}constant: yes{rest}") == []
    assert check(f"{head}constant: 2026-08-21{rest}") == []
    parameters["mode"]["parameterType"] = "NUMBER_INTEGER"
    head, _, rest = sample.text.partition("constant: fast")
    assert check(f"{head}constant: 1e3{rest}") == []
    assert [found.rule for found in check(f"{head}constant: on{rest}")] == ["parameter-type"]


JUNK = ("", "x", 0, -1.5, 10**400, True, None, [], {}, [[]], {"x": {"y": []}}, ["x"], {1: 2})


def _places(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:12])
def test_no_junk_anywhere_makes_it_crash(sample, junk):
    """Every single place of both documents, replaced."""
    documents = [sample.pipeline, sample.platform]
    for path in _places(documents):
        if len(path) < 2:
            continue
        changed = copy.deepcopy(documents)
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = junk
        file = File(pipeline=changed[0], platform=changed[1])
        for finding in check_file(file):
            assert all(finding), path
