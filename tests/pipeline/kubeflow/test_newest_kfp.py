"""What we compile, read by the newest Kubeflow SDK, in an environment of its own."""

import os
import pathlib
import sys

import compiled_by
import pytest
from compiled_by import EVERYTHING
from processes import ran

from stagecraft.pipeline.kubeflow.compile import create_pipeline
from stagecraft.pipeline.settings import load

READ = """
import sys, yaml
from google.protobuf import json_format
from kfp import components, kubernetes, pipeline_spec
from kfp.kubernetes import kubernetes_executor_config_pb2 as pb
from kfp.pipeline_spec import pipeline_spec_pb2 as spec_pb

component = components.load_component_from_file(sys.argv[1])
print(component.name, sorted(component.component_spec.inputs))
spec, platform = yaml.safe_load_all(open(sys.argv[1]))
deployment = spec.pop("deploymentSpec")
json_format.ParseDict(spec, spec_pb.PipelineSpec())
json_format.ParseDict(deployment, spec_pb.PipelineDeploymentConfig())
json_format.ParseDict(platform, spec_pb.PlatformSpec())
executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
for entry in executors.values():
    json_format.ParseDict(entry, pb.KubernetesExecutorConfig())
print(len(executors), "platform entries")
"""


@pytest.mark.slow
def test_it_is_read_without_an_unknown_field(tmp_path):
    settings = load("quickstart")
    compiled = compiled_by.ours(create_pipeline(settings), tmp_path, steps={"Trainer": EVERYTHING})
    pods = compiled_by.pods(compiled)
    assert {"Trainer_executor", "Baseline_executor"} <= set(pods)
    uv = pathlib.Path(sys.executable).with_name("uv")
    environment = tmp_path / "kfp"
    clean = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    for words in (
        ["venv", "--python", sys.executable, environment],
        ["pip", "install", "--python", environment, "--upgrade", "kfp", "kfp-kubernetes"],
    ):
        ran(uv, *words, env=clean)
    done = ran(environment / "bin" / "python", "-c", READ, tmp_path / "ours.yaml", env=clean)
    name, entries = done.stdout.splitlines()
    assert name.startswith("quickstart ") and "'train_epochs'" in name
    assert entries == f"{len(pods)} platform entries"
