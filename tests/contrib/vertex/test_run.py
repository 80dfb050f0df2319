"""The compiled steps, run by TFX's own entrypoint under the contract that Vertex AI has with it.

Nobody had a Vertex AI at hand. Emulated is what ``ExecutorInput`` of schema 2.0.0 says: parameters
with a type, artifacts with theirs, a file for the output, which the hook before the cache check
writes first. Resolvers find what an emulated store knows. The root is a folder: no ``gs://``.
"""

import json
from typing import Any

import pytest
from support import TINY
from tfx.orchestration.kubeflow.v2.container import kubeflow_v2_run_executor

from stagecraft.contrib.vertex import driver, runner as vertex_runner
from stagecraft.contrib.vertex.runner import VertexRunner
from stagecraft.pipeline.kubeflow.compile import defaults
from stagecraft.pipeline.settings import load

pytestmark = pytest.mark.full


class Vertex:
    """Runs a PipelineJob, one step after the other."""

    def __init__(self, job, folder):
        self.job, self.folder = job, folder
        self.spec = job["pipelineSpec"]
        self.outputs: dict[str, Any] = {}
        self.hooks: dict[str, Any] = {}

    def run(self, found):
        """Runs all steps; ``found`` is what resolvers find, by key."""
        tasks = dict(self.spec["root"]["dag"]["tasks"])
        while tasks:
            ready = [name for name, task in tasks.items() if not self._waits_for(task) & set(tasks)]
            for name in ready:
                self._step(name, tasks.pop(name), found)

    def _waits_for(self, task):
        sources = task.get("inputs", {}).get("artifacts", {}).values()
        return {
            *task.get("dependentTasks", ()),
            *(source["taskOutputArtifact"]["producerTask"] for source in sources),
        }

    def _step(self, name, task, found):
        component = self.spec["components"][name]
        executor = self.spec["deploymentSpec"]["executors"][component["executorLabel"]]
        definitions = component.get("outputDefinitions", {}).get("artifacts", {})
        if "resolver" in executor:
            self.outputs[name] = {key: {"artifacts": found.get(key, [])} for key in definitions}
            return
        folder = self.folder / name
        outputs = {}
        for key, definition in definitions.items():
            place = f"{folder}/{key}"
            made = {"name": place, "type": definition["artifactType"], "uri": place}
            outputs[key] = {"artifacts": [made]}
        output_file = folder / "executor_output.json"
        inputs = task.get("inputs", {})
        text = json.dumps(
            {
                "inputs": {
                    "parameters": _mapped(self._value, inputs.get("parameters", {})),
                    "artifacts": _mapped(self._artifacts, inputs.get("artifacts", {})),
                },
                "outputs": {"artifacts": outputs, "outputFile": str(output_file)},
            }
        )
        container = executor["container"]
        if hook := container.get("lifecycle", {}).get("preCacheCheck"):
            assert tuple(hook["command"]) == driver.COMMAND
            driver.main([text if argument == "{{$}}" else argument for argument in hook["args"]])
            self.hooks[name] = json.loads(output_file.read_text())
        argv = [text if argument == "{{$}}" else argument for argument in container["args"]]
        kubeflow_v2_run_executor.main(kubeflow_v2_run_executor._parse_flags(["", *argv]))
        written = json.loads(output_file.read_text())["artifacts"]
        for key, of_key in outputs.items():
            of_key["artifacts"][0] |= written[key]["artifacts"][0]
        self.outputs[name] = outputs

    def _artifacts(self, source):
        made = source["taskOutputArtifact"]
        return self.outputs[made["producerTask"]][made["outputArtifactKey"]]

    def _value(self, source):
        if "componentInputParameter" in source:
            return self.job["runtimeConfig"]["parameters"][source["componentInputParameter"]]
        return source["runtimeValue"]["constantValue"]


def _mapped(function, values):
    return {key: function(value) for key, value in values.items()}


def test_all_steps_run_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    serving = "gs://bucket/stagecraft/serving/quickstart"
    settings = load("quickstart", (*TINY, "kubeflow.pipeline_root=gs://bucket/stagecraft"))
    runner = VertexRunner(settings.kubeflow)
    job = runner.run(vertex_runner.create_pipeline(settings), defaults(settings), write_out=False)
    text = json.dumps(job)
    assert serving in text
    job = json.loads(text.replace(serving, str(tmp_path / "serving")))

    first = Vertex(job, tmp_path / "first")
    first.run(found={})
    [version] = (tmp_path / "serving").iterdir()
    assert (version / "saved_model.pb").exists()
    [model] = first.outputs["Trainer"]["model"]["artifacts"]
    assert model["uri"] == str(tmp_path / "first" / "Trainer" / "model")
    assert (tmp_path / "first" / "Trainer" / "model" / "Format-Serving").is_dir()
    assert (tmp_path / "first" / "Trainer" / "model_run" / "record.json").exists()
    assert model["metadata"]["steps"] == 6
    fingerprint = first.hooks["Cifar10ExampleGen"]["parameterValues"]["fingerprint"]
    assert len(fingerprint) == 64

    # What the resolvers look up: the blessing of a model, by the model's name.
    [blessing] = first.outputs["Evaluator"]["blessing"]["artifacts"]
    assert blessing["metadata"]["blessed"] == 1
    assert blessing["metadata"]["current_model_id"] == model["name"]

    second = Vertex(job, tmp_path / "second")
    second.run(found={"model": [model], "model_blessing": [blessing]})
    assert second.hooks["Cifar10ExampleGen"]["parameterValues"]["fingerprint"] == fingerprint
    [compared] = second.outputs["Evaluator"]["blessing"]["artifacts"]
    assert compared["metadata"]["baseline_model_id"] == model["name"]
