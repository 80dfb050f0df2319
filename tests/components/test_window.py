"""A window has the newest spans, each read once, through a real TFX pipeline."""

# No "from __future__ import annotations": TFX reads the annotations of its components.
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from ml_metadata.proto import metadata_store_pb2
from recorded_runs import RecordedRuns
from tfx.components.example_gen.component import FileBasedExampleGen
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.base import base_beam_executor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec
from tfx.dsl.components.common.resolver import Resolver
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx.types.channel import Channel

from stagecraft.components.example_gen import named, spans
from stagecraft.components.resolvers import SpanWindow

Examples = standard_artifacts.Examples
Anomalies = standard_artifacts.ExampleAnomalies


class Reader(base_beam_executor.BaseBeamExecutor):
    """Copies the file of a span, and notes that it read the file."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:
        given = json.loads(exec_properties["input_config"])["splits"][0]["pattern"]
        [file] = pathlib.Path(exec_properties["input_base"]).glob(given)
        [examples] = output_dict["examples"]
        (pathlib.Path(examples.uri) / "rows").write_text(file.read_text())
        with (file.parents[2] / "reads").open("a") as log:
            log.write(f"{file.parts[-3]}/{file.parts[-2]}\n")


class ReaderGen(FileBasedExampleGen):
    """Reads one file."""

    EXECUTOR_SPEC = BeamExecutorSpec(Reader)


class RefusedError(Exception):
    """Rows that the gate refuses."""


@component
def StandInGate(examples: InputArtifact[Examples], anomalies: OutputArtifact[Anomalies]) -> None:
    """Refuses the rows "broken"."""
    if (pathlib.Path(examples.uri) / "rows").read_text() == "broken":
        raise RefusedError


@component
def StandInTrainer(
    examples: InputArtifact[list[Examples]], model: OutputArtifact[standard_artifacts.Model]
) -> None:
    """Notes its examples."""
    ordered = sorted(examples, key=lambda each: each.get_int_custom_property("span"))
    read = [f"{each.get_int_custom_property('span')}" for each in ordered]
    rows = [(pathlib.Path(each.uri) / "rows").read_text() for each in ordered]
    model.set_string_custom_property("spans", " ".join(read))
    model.set_string_custom_property("rows", " ".join(rows))


Run = Callable[..., tuple[str, str]]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """Runs a pipeline with a window of three; gives the spans and rows of its training."""
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))

    def run_once(span: str = spans.LATEST, folder: str = "days") -> tuple[str, str]:
        source = str(tmp_path / folder / "{SPAN}" / "v{VERSION}")
        splits = example_gen_pb2.Output(
            split_config=example_gen_pb2.SplitConfig(
                splits=[example_gen_pb2.SplitConfig.Split(name="train", hash_buckets=1)]
            )
        )
        gen = named.make(f"{__name__}.ReaderGen", {}, source, splits, span)
        gate = StandInGate(examples=gen.outputs["examples"])
        window = Resolver(
            strategy_class=SpanWindow,
            config={"size": 3},
            newest=gen.outputs["examples"],
            examples=Channel(type=Examples),
            anomalies=Channel(
                type=Anomalies, producer_component_id=gate.id, output_key="anomalies"
            ),
        ).with_id("Window")
        window.add_upstream_node(gate)
        trainer = StandInTrainer(examples=window.outputs["examples"])
        LocalDagRunner().run(
            Pipeline(
                pipeline_name="window",
                pipeline_root=str(tmp_path / "root"),
                components=[gen, gate, window, trainer],
                metadata_connection_config=connection,
                enable_cache=True,
            )
        )
        with metadata.Metadata(connection) as handle:
            [execution] = sorted(
                handle.store.get_executions_by_type(f"{__name__}.StandInTrainer"),
                key=lambda each: each.id,
            )[-1:]
            events = handle.store.get_events_by_execution_ids([execution.id])
            made = [each.artifact_id for each in events if each.type == each.OUTPUT]
            [model] = handle.store.get_artifacts_by_id(made)
        return (
            model.custom_properties["spans"].string_value,
            model.custom_properties["rows"].string_value,
        )

    return run_once


@pytest.fixture
def day(tmp_path: pathlib.Path) -> Callable[..., None]:
    """Writes the file of a span."""

    def write(span: int, rows: str, version: int = 1, folder: str = "days") -> None:
        path = tmp_path / folder / f"{span}" / f"v{version}" / "rows.csv"
        path.parent.mkdir(parents=True)
        path.write_text(rows)

    return write


def reads(folder: pathlib.Path) -> list[str]:
    return (folder / "reads").read_text().split()


def test_a_window_has_the_newest_spans_and_none_is_read_twice(run, day, tmp_path):
    for span in (1, 2, 3, 4):
        day(span, f"rows{span}")
        found = run()
    assert found == ("2 3 4", "rows2 rows3 rows4")
    assert run() == run("4") == found, "cached, however the span was chosen"
    assert run("3") == ("1 2 3", "rows1 rows2 rows3"), "later spans are no part of an older one"
    assert reads(tmp_path / "days") == ["1/v1", "2/v1", "3/v1", "4/v1"]
    day(3, "new", version=2)
    assert run("3") == ("1 2 3", "rows1 rows2 new")
    assert run() == ("2 3 4", "rows2 new rows4")
    assert reads(tmp_path / "days")[4:] == ["3/v2"]


def test_a_window_has_the_version_and_the_content_that_a_run_used_last(run, day, tmp_path):
    for span in (1, 2):
        day(span, f"rows{span}")
        run()
    day(1, "bad", version=2)
    run("1")
    assert run() == ("1 2", "bad rows2")
    shutil.rmtree(tmp_path / "days" / "1" / "v2")
    run("1")  # from the cache
    assert run() == ("1 2", "rows1 rows2"), "a version that was removed"
    file = tmp_path / "days" / "1" / "v1" / "rows.csv"
    before = file.stat()
    file.write_text("corrected")
    run("1")
    assert run() == ("1 2", "corrected rows2")
    file.write_text("rows1")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    run("1")  # from the cache
    assert run() == ("1 2", "rows1 rows2"), "a file that was put back"
    assert reads(tmp_path / "days") == ["1/v1", "2/v1", "1/v2", "1/v1"]


def test_a_refused_span_and_other_data_are_no_part_of_a_window(run, day, tmp_path):
    day(1, "first")
    run()
    day(2, "broken")
    with pytest.raises(RefusedError):
        run()
    day(3, "third")
    assert run() == ("1 3", "first third")
    day(4, "elsewhere", folder="others")
    assert run(folder="others") == ("4", "elsewhere")


def test_the_examples_tell_span_version_and_files(run, day, tmp_path):
    day(7, "rows")
    run()
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))
    with metadata.Metadata(connection) as handle:
        [examples] = handle.store.get_artifacts_by_type("Examples")
    assert examples.state == metadata_store_pb2.Artifact.LIVE
    properties = {
        name: getattr(value, value.WhichOneof("value"))
        for name, value in examples.custom_properties.items()
    }
    assert spans.told(properties) == {"span": 7, "name": "7", "version": 1, "files": 1}
    assert "num_files:1" in properties["input_fingerprint"]


@pytest.mark.parametrize("count", [4, 60])
def test_the_number_of_queries_does_not_grow_with_the_spans(tmp_path, count):
    store, given = RecordedRuns(), {"examples": [], "anomalies": []}
    for span in range(count):
        examples = store.execute([], Examples, str(tmp_path))
        examples.set_int_custom_property(spans.SPAN, span)
        examples.set_string_custom_property(spans.SERIES, "s")
        given["examples"].append(examples)
        given["anomalies"].append(store.execute([examples], Anomalies))
    given["newest"] = given["examples"][-1:]
    found = SpanWindow(3).resolve_artifacts(store, given)["examples"]
    assert found == given["examples"][-3:]
    assert store.queries == 3


def test_words_name_a_version_that_was_not_read(tmp_path, day):
    for span, version in ((1, 1), (1, 2), (2, 1), (3, 1), (9, 4)):
        day(span, "rows", version)
    source = f"{tmp_path}/days/{{SPAN}}/v{{VERSION}}"
    properties = spans.find([source], "3").properties()
    read = [{"span": span, "name": f"{span}", "version": 1} for span in (1, 2, 3)]
    now = spans.with_versions(read, properties)
    assert [each.get("version_there") for each in now] == [2, None, None]
    [said] = spans.window(now, 3).other
    assert {"1", "2"} <= set(re.findall("[0-9]+", said)) and said in spans.window(now, 4).words()
    (tmp_path / "days").rename(tmp_path / "moved")
    assert spans.with_versions(read, properties) == read
    assert spans.with_versions(read, {}) == read


def test_words_name_what_is_missing():
    read = [{"span": 20_783, "name": "2026-11-26"}, {"span": 20_785, "name": "2026-11-28"}]
    found = spans.window(read, 4)
    assert found.names == ("2026-11-26", "2026-11-28")
    assert found.missing == ("2026-11-25", "2026-11-27")
    assert spans.window(read[:1], 1).missing == ()
    assert spans.window([{"span": 1, "name": "1"}], 3).missing == ("0",), "none is below 0"
