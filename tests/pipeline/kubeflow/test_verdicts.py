"""Linter and emulator against what the real backend did with small pipelines.

``STAGECRAFT_KUBEFLOW`` names the folder with the recordings.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
from typing import Any

import pytest

from stagecraft.pipeline.kubeflow import document
from stagecraft.pipeline.kubeflow.emulator import driver, launcher
from stagecraft.pipeline.kubeflow.emulator.run import Run
from stagecraft.pipeline.kubeflow.linter import check

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FOLDER = pathlib.Path(
    os.environ.get("STAGECRAFT_KUBEFLOW", REPOSITORY.parent / "shared" / "kubeflow")
)
VERDICTS = FOLDER / "verdicts"

pytestmark = pytest.mark.skipif(
    not VERDICTS.exists(), reason=f"no recorded verdicts in {VERDICTS}; set STAGECRAFT_KUBEFLOW"
)

BAD = ("refused", "fails")


@functools.cache
def records() -> list[dict[str, Any]]:
    if not VERDICTS.exists():
        return []
    lines = (VERDICTS / "verdicts.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def named(record: dict[str, Any]) -> str:
    return str(pathlib.Path(record["file"]).stem)


EXECUTED = [record for record in records() if record.get("driver_launcher")]


@pytest.mark.parametrize("record", EXECUTED, ids=named)
def test_the_emulator_is_the_backend(
    record: dict[str, Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States of all tasks, and all that a container receives."""
    received: dict[str, Any] = {}
    compiled_by_launcher = launcher.command

    def spy(step: Any, executor_input: Any, variables: Any, local: Any) -> list[str]:
        def local_path(uri: str) -> str:
            return local(uri)

        found = compiled_by_launcher(step, executor_input, variables, local_path)
        received[step.name] = found
        return found

    monkeypatch.setattr(launcher, "command", spy)
    monkeypatch.setattr(driver.uuid, "uuid4", lambda: "ID")
    compiled = document.load(VERDICTS / record["file"])
    # The recorded runs used the installation's root.
    compiled.spec.pop("defaultPipelineRoot", None)
    run = Run(compiled, tmp_path, compiled.arguments(record.get("run_parameters") or {}))
    for bucket in ("mlpipeline", "bucket"):
        imported = tmp_path / "store" / "minio" / bucket / "imported" / "value"
        imported.parent.mkdir(parents=True)
        imported.write_text("imported text")
    run.run(parallel=1, on_event=lambda *_: None)
    states = {name: how.state for name, how in run.ended.items()}
    expected = {
        name: "failed" if state.startswith("failed") else "done"
        for name, state in record["driver_launcher"].items()
        if state != "not started"
    }
    causes = {name: how.cause for name, how in run.ended.items()}
    assert states == expected, causes
    for name, container in record.get("container", {}).items():
        _compare(container, received[name], run)


def _compare(container: dict[str, Any], command: list[str], run: Run) -> None:
    if "args" not in container:
        return
    arguments = command[-len(container["args"]) :]
    roots = r"(/[^\s'\"|]*?)?/root(?=/(?:minio|s3|gcs)/)"
    for expected, argument in zip(container["args"], arguments, strict=True):
        plain = re.sub(roots, "", argument).replace(run.run_id, "ID")
        if expected != "<the executor input>":
            assert plain == expected
            continue
        wanted = container["executor_input"]
        if "broken JSON" in str(wanted["artifacts"]):
            continue
        given = json.loads(plain, strict=False)["inputs"]
        assert given["parameterValues"] == json.loads(wanted["parameterValues"], strict=False)
        assert set(given["artifacts"]) == set(wanted["artifacts"])
        for key, artifact in wanted["artifacts"].items():
            [found] = given["artifacts"][key]["artifacts"]
            for name in {"store_session_info", "display_name"}.difference(artifact["metadata"]):
                found["metadata"].pop(name, None)
            assert {part: found[part] for part in artifact} == artifact


@pytest.mark.parametrize("record", records(), ids=named)
def test_the_linter_is_the_backend(record: dict[str, Any]) -> None:
    """A finding exactly where the backend refuses, fails or changes a value."""
    backend = record["backend"]
    findings = check((VERDICTS / record["file"]).read_text())
    if backend["state"] in (*BAD, "altered") and "only_at_run_time" not in backend:
        assert findings, backend
    if backend["state"] == "ok" and not record.get("literal_args"):
        assert not findings, backend
    for index in record.get("literal_args", ()):
        assert any(finding.location.endswith(f"args[{index}]") for finding in findings)
    false = {(each["rule"], each["where"]) for each in record.get("false_findings", ())}
    assert not [each for each in findings if (each.rule, each.location) in false - KEPT]


KEPT = {("pipeline-name", "pipelineInfo.name")}
"""Findings that were at the wrong layer: the same rule says the right one now."""
