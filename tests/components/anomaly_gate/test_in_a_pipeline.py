"""The gate where it belongs: between TFX's StatisticsGen and whatever comes next."""

# No "from __future__ import annotations": TFX reads the annotations of its components.
import pathlib

import pytest
import tensorflow as tf
from ml_metadata.proto import metadata_store_pb2
from tfx.components.statistics_gen.component import StatisticsGen
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact
from tfx.dsl.component.experimental.decorators import component
from tfx.orchestration import metadata
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.pipeline import Pipeline
from tfx.types import standard_artifacts

from stagecraft.components.anomaly_gate.component import AnomalyGate
from stagecraft.components.anomaly_gate.executor import AnomaliesError
from stagecraft.components.import_schema import ImportSchema
from stagecraft.schemas import features

# Newer Beam's DirectRunner would try to fetch another runner's binary.
BEAM_ARGS = ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]


@component
def StandInExampleGen(examples: OutputArtifact[standard_artifacts.Examples]):
    """Ten good pictures a split."""
    examples.splits = ["train", "eval"]
    for number, split in enumerate(examples.splits):
        folder = pathlib.Path(examples.uri) / f"Split-{split}"
        folder.mkdir()
        with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001")) as writer:
            for index in range(10):
                example = tf.train.Example()
                feature = example.features.feature
                feature["image"].bytes_list.value.append(bytes([index]) * 3072)
                feature["label"].int64_list.value.append(index)
                feature["id"].int64_list.value.append(number * 10 + index)
                writer.write(example.SerializeToString())


@component
def WhatFollows(anomalies: InputArtifact[standard_artifacts.ExampleAnomalies]):
    """Whatever depends on the gate."""


@pytest.mark.slow
def test_the_gate_opens_and_an_edited_schema_shuts_it(tmp_path):
    schema_file = tmp_path / "schema.pbtxt"
    schema_text = pathlib.Path(features.DATASETS["cifar10"].schema_file).read_text()
    connection = metadata.sqlite_metadata_connection_config(str(tmp_path / "metadata.db"))

    def run() -> None:
        example_gen = StandInExampleGen()
        statistics_gen = StatisticsGen(examples=example_gen.outputs["examples"])
        import_schema = ImportSchema(schema_file=str(schema_file))
        gate = AnomalyGate(
            examples=example_gen.outputs["examples"],
            statistics=statistics_gen.outputs["statistics"],
            schema=import_schema.outputs["schema"],
        )
        LocalDagRunner().run(
            Pipeline(
                pipeline_name="gate",
                pipeline_root=str(tmp_path / "root"),
                components=[
                    example_gen,
                    statistics_gen.with_beam_pipeline_args(BEAM_ARGS),
                    import_schema,
                    gate,
                    WhatFollows(anomalies=gate.outputs["anomalies"]),
                ],
                metadata_connection_config=connection,
                enable_cache=True,
            )
        )

    def states() -> dict[str, list[str]]:
        """State of every execution so far, by component."""
        found: dict[str, list[str]] = {}
        with metadata.Metadata(connection) as handle:
            types = {kind.id: kind.name for kind in handle.store.get_execution_types()}
            for execution in sorted(handle.store.get_executions(), key=lambda e: e.id):
                name = types[execution.type_id].rpartition(".")[2]
                state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
                found.setdefault(name, []).append(state)
        return found

    def written() -> list[str]:
        return sorted(p.parent.name for p in tmp_path.glob("root/AnomalyGate/anomalies/*/*"))

    schema_file.write_text(schema_text)
    run()
    with metadata.Metadata(connection) as handle:
        (anomalies,) = handle.store.get_artifacts_by_type("ExampleAnomalies")
    assert anomalies.custom_properties["anomalies"].int_value == 0
    first = written()

    schema_file.write_text("# the same\n" + schema_text)
    run()
    assert written() == first

    schema_file.write_text(schema_text.replace("max: 9", "max: 7"))
    with pytest.raises(AnomaliesError, match="0 to 7; 2 of 10"):
        run()
    assert written() == first  # the failed attempt's folder is gone

    assert states() == {
        "StandInExampleGen": ["COMPLETE", "CACHED", "CACHED"],
        "StatisticsGen": ["COMPLETE", "CACHED", "CACHED"],
        "ImportSchema": ["COMPLETE", "CACHED", "COMPLETE"],
        "AnomalyGate": ["COMPLETE", "CACHED", "FAILED"],
        "WhatFollows": ["COMPLETE", "CACHED"],
    }
