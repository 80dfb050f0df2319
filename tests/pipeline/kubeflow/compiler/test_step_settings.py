"""Beam's arguments are in the environment of steps, which is no part of their cache keys."""

import json
import pathlib
import sys
from typing import Any

import apache_beam as beam
import pytest
from tfx.dsl.component.experimental.annotations import BeamComponentParameter, OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration.pipeline import Pipeline
from tfx.types.standard_artifacts import Examples

from stagecraft.pipeline import redacted_log
from stagecraft.pipeline.kubeflow.entrypoint import __main__, run, step_log
from stagecraft.pipeline.kubeflow.runner import KubeflowRunner
from stagecraft.pipeline.kubeflow.spec import BEAM_ARGS
from stagecraft.trainer_module.processes import preemption


@component(use_beam=True)
def Count(
    counted: OutputArtifact[Examples],
    beam_pipeline: BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Runs Beam."""


@component
def Plain(copied: OutputArtifact[Examples]) -> None:
    """Runs no Beam."""


def containers(tmp_path: pathlib.Path, *args: str, own: tuple[str, ...] = ()) -> dict[str, Any]:
    """The containers of two steps."""
    pipeline = Pipeline(
        "points",
        "minio://bucket/root",
        components=[Count().with_beam_pipeline_args(list(own)), Plain()],
        beam_pipeline_args=list(args),
    )
    compiled = KubeflowRunner(output_dir=str(tmp_path)).run(pipeline)
    assert compiled is not None
    executors = compiled["pipelineSpec"]["deploymentSpec"]["executors"]
    return {name.removesuffix("_executor"): each["container"] for name, each in executors.items()}


def variable(container: dict[str, Any]) -> list[str]:
    """The Beam arguments in the environment."""
    [value] = [each["value"] for each in container["env"] if each["name"] == BEAM_ARGS]
    arguments: list[str] = json.loads(value)
    return arguments


def test_where_beam_runs_is_no_part_of_the_command(tmp_path: pathlib.Path) -> None:
    flink = ("--runner=FlinkRunner", "--job_endpoint=h:1", "--parallelism=2")
    one = containers(tmp_path, *flink, own=("--max_parallelism=4",))
    two = containers(tmp_path, "--runner=DirectRunner")
    assert variable(one["Count"]) == [*flink, "--max_parallelism=4"]
    assert variable(two["Count"]) == ["--runner=DirectRunner"]
    for name in one:
        assert one[name]["args"] == two[name]["args"]


def test_arguments_of_the_users_code_stay(tmp_path: pathlib.Path) -> None:
    found = containers(tmp_path, "--mine=1", "--job_endpoint=h:1")
    assert "--mine=1" in found["Count"]["args"]
    assert variable(found["Count"]) == ["--job_endpoint=h:1"]


def test_a_step_without_beam_gets_none(tmp_path: pathlib.Path) -> None:
    found = containers(tmp_path, "--mine=1", "--s3_secret_access_key=x")["Plain"]
    assert "--mine=1" not in found["args"] and "env" not in found


def test_the_entrypoint_passes_both_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(run, "run", lambda *args, **_: seen.append(args[-1]))
    for module, name in (
        (preemption, "handle_sigterm"), (step_log, "configure"), (redacted_log, "install"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *args: None)
    monkeypatch.setenv(BEAM_ARGS, '["--job_endpoint=h:1"]')
    monkeypatch.setenv("_KFP_RUNTIME", "true")
    words = "--task Count --pipeline_folder f --json_serialized_invocation_args {} --mine=1"
    monkeypatch.setattr(sys, "argv", ["entrypoint", "run", *words.split()])
    __main__.main()
    assert seen == [["--mine=1", "--job_endpoint=h:1"]]
