"""Where Beam's workers run, and what they need there."""

from __future__ import annotations

import pytest

from stagecraft.pipeline.beam import beam_args
from stagecraft.pipeline.beam.in_process import (
    for_workers,
    runs_elsewhere,
    workers_are_elsewhere,
)
from stagecraft.pipeline.settings import BeamSettings

STATISTICS = "tfx.components.statistics_gen.executor.Executor"
PUSHER = "tfx.components.pusher.executor.Executor"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], False),
        (beam_args(BeamSettings()), False),
        (["--runner=DirectRunner"], False),
        (["--runner", "FlinkRunner"], False),
        (["--runner=a.FlinkRunner", "--job_endpoint=host:1"], False),
        (["--runner=FlinkRunner", "--flink_master=[local]"], False),
        (["--runner=FlinkRunner", "--flink_master=host:8081"], True),
        (["--runner=SparkRunner", "--spark_master_url=local[4]"], False),
        (["--runner", "FlinkRunner", "--environment_type", "DOCKER"], True),
        (["--runner=DataflowRunner"], True),
        (["--runner=FlinkRunner", "--environment_type=LOOPBACK"], False),
        (["--runner=SparkRunner", "--environment_type=EXTERNAL"], True),
        (["--runner=a.b.OwnRunner"], True),
    ],
)
def test_workers_are_elsewhere(arguments: list[str], expected: bool) -> None:
    assert workers_are_elsewhere(arguments) is expected
    assert runs_elsewhere(STATISTICS, arguments) is expected
    assert not runs_elsewhere(PUSHER, arguments)


def test_workers_elsewhere_open_object_stores() -> None:
    here = ["--runner=DirectRunner"]
    assert for_workers(here) == here
    completed = for_workers(["--runner=DataflowRunner"])
    plugin = "--beam_plugin=stagecraft.components.object_store.beam_worker"
    assert completed[0] == "--runner=DataflowRunner" and plugin in completed
    assert for_workers(completed) == completed
