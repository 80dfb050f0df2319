"""Three presets as they are compiled, against files that people read; all presets pass the linter.

``make golden`` writes the files anew; what has changed is then in the diff of the commit.
"""

import re

import golden
import hub_presets
import pytest
import yaml

from stagecraft.pipeline.kubeflow import linter
from stagecraft.pipeline.kubeflow.compile import compile_pipeline
from stagecraft.pipeline.settings import load, presets
from stagecraft.pipeline.settings.kubeflow import DEFAULT_IMAGE

READ = ("cifar10", "quickstart", "taxi")
"""Presets with a golden file: pictures, the small one, a table."""

FINGERPRINT = re.compile(
    r"""(code_fingerprint["']?:\s+(?:runtimeValue:\s+constant:\s+)?"?|StringValue.{,9}\s+.{,9}value"""
    r"""\\": \\")'?[0-9a-f]{16}\b'?"""
)
"""What ``code_fingerprint`` gives, as a parameter of a task or in the JSON of a custom config."""


def without_fingerprints(text):
    """A compiled pipeline, whatever its code is."""
    return FINGERPRINT.sub(r"\1FINGERPRINT", text)


@pytest.mark.parametrize(
    "text",
    [
        "code_fingerprint:\n  runtimeValue:\n    constant: {}\n",
        "code_fingerprint:\n  runtimeValue:\n    constant: '{}'\n",  # digits only, in YAML
        """constant: '{{"code_fingerprint": "{}"}}'""",
    ],
)
@pytest.mark.parametrize("digits", ["f1892cff7fafdc80", "1234567890123456"])
def test_a_change_of_code_is_no_change_of_a_file(text, digits):
    masked = without_fingerprints(text.format(digits))
    assert digits not in masked and masked.count("FINGERPRINT") == 1
    assert "runtimeValue" not in text or masked.endswith("constant: FINGERPRINT\n")
    assert "a94a8fe5ccb19ba6" in without_fingerprints("constant: a94a8fe5ccb19ba6")  # of data


@pytest.mark.parametrize("preset", presets())
def test_a_preset_compiles(preset, tmp_path):
    settings = load(preset)
    hub_presets.skip_without(settings)
    compile_pipeline(settings, tmp_path / "compiled.yaml")
    text = (tmp_path / "compiled.yaml").read_text()
    assert linter.check(text) == []
    job = next(yaml.safe_load_all(text))
    parameters = job["root"]["dag"]["tasks"]["Trainer"]["inputs"]["parameters"]
    for name, value in settings.flat().items():
        given = parameters[name]
        assert "componentInputParameter" in given or given["runtimeValue"]["constant"] == value
    if preset not in READ:
        return
    # The code changes with every commit, and TFX's version on each stack.
    text = without_fingerprints(text)
    assert not re.findall(r"\b[0-9a-f]{16,}\b", text)
    text = re.sub(r"(sdkVersion: tfx-).*", r"\1VERSION", text)
    text = text.replace(DEFAULT_IMAGE, "stagecraft:VERSION")
    text = re.sub(r'"_slice_sqls": null,\s', "", text)  # an option that newer TFDV has no more
    golden.check(f"{preset}.yaml", text)


def test_a_training_that_continues_an_earlier_one(tmp_path):
    """A step looks up the model, and the Trainer gets it as a parameter, as its baseline."""
    settings = load("taxi", ("train.initial_weights=last_pushed", "train.warm_start.epochs=1"))
    compile_pipeline(settings, tmp_path / "compiled.yaml")
    text = (tmp_path / "compiled.yaml").read_text()
    assert linter.check(text) == []
    job = next(yaml.safe_load_all(text))
    tasks = job["root"]["dag"]["tasks"]
    looks = tasks["BaseModel"]
    [source] = looks["inputs"]["artifacts"].values()
    assert source["taskOutputArtifact"]["producerTask"] in tasks
    assert tasks["Trainer"]["inputs"]["parameters"]["base_model"]["taskOutputParameter"] == {
        "producerTask": "BaseModel",
        "outputParameterKey": "model",
    }
    container = job["deploymentSpec"]["executors"]["BaseModel_executor"]["container"]
    place = container["args"].index("--choice")
    assert container["args"][place + 1] == "last_pushed"
