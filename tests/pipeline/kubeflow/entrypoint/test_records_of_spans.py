"""Spans that runs used, where later runs find them; and a window as an input."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from executor_input import artifact, executor_input, schema
from tfx.dsl.components.base import base_executor

from stagecraft.pipeline.kubeflow.entrypoint import records
from stagecraft.pipeline.kubeflow.entrypoint.invocation import Invocation
from stagecraft.pipeline.kubeflow.entrypoint.run import run

PIPELINE = "minio://bucket/base/name"


class Notes(base_executor.BaseExecutor):
    """Notes the rows of its input ``examples``."""

    rows: list[str] = []

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Any) -> None:
        Notes.rows = [
            (pathlib.Path(each.uri) / "rows").read_text() for each in input_dict["examples"]
        ]


def examples(store: pathlib.Path, span: int, rows: str, series: str = "s", **more: Any) -> Any:
    """An artifact of examples with rows."""
    uri = f"{PIPELINE}/run{rows}/Gen/salt/examples"
    folder = store / uri.removeprefix("minio://")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows").write_text(rows)
    made = artifact(uri, "tfx.Examples")
    numbers = {"span": float(span), "span_name": str(span), "span_series": series, **more}
    made["metadata"] = numbers
    return made


def looked_up(tmp_path: pathlib.Path, newest: Any, size: int = 3) -> list[dict[str, Any]]:
    given = executor_input(tmp_path / "output.json", {}, inputs={"candidate_0": newest})
    invocation = Invocation(json.dumps(given), "{}", [])
    records.look_up_window(invocation, PIPELINE, size)
    found: list[dict[str, Any]] = json.loads(invocation.output()["parameterValues"]["examples"])
    return found


@pytest.fixture
def store(
    folder_store: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
    """The object store; the launcher's copies are in ``tmp_path / root``."""
    monkeypatch.setenv("STAGECRAFT_LAUNCHER_ROOT", str(tmp_path / "root"))
    return folder_store / "minio"


@pytest.fixture
def recorded(store: pathlib.Path) -> pathlib.Path:
    for span, rows, more in (
        (1, "a", {}),
        (2, "b", {"version": 1.0}),
        (2, "c", {"version": 2.0}),
        (3, "e", {}),
        (3, "d", {"series": "other"}),
        (5, "f", {}),
    ):
        looked_up(store.parents[1], examples(store, span, rows, **more))
    return store


def test_a_window_has_the_version_of_each_span_before_that_a_run_used_last(recorded, tmp_path):
    newest = examples(recorded, 4, "g")
    found = looked_up(tmp_path, newest)
    assert [pathlib.Path(each["uri"]).parts[4] for each in found] == ["runc", "rune", "rung"]
    assert found[-1]["uri"] == newest["uri"]
    # Somebody removed version 2, and ran the span again: all its steps are cached.
    looked_up(tmp_path, examples(recorded, 2, "b", version=1.0))
    found = looked_up(tmp_path, newest)
    assert [pathlib.Path(each["uri"]).parts[4] for each in found] == ["runb", "rune", "rung"]
    alone = looked_up(tmp_path, artifact(newest["uri"], "tfx.Examples"))
    assert [each["uri"] for each in alone] == [newest["uri"]], "data without spans"


def test_a_step_gets_all_examples(recorded, tmp_path):
    newest = examples(recorded, 4, "g")
    given = executor_input(
        tmp_path / "output_metadata.json", {"examples": json.dumps(looked_up(tmp_path, newest))}
    )
    spec = {"parameters": {"examples": {"parameterType": "STRING"}}}
    invocation = Invocation(json.dumps(given), json.dumps(spec), [])
    run(invocation, PIPELINE, f"{__name__}.Notes", {"examples": schema("tfx.Examples")}, [])
    assert Notes.rows == ["c", "e", "g"]
