"""Where Beam's workers run, and what they need there."""

from __future__ import annotations

import pytest

from stagecraft.pipeline.beam import beam_args, workers
from stagecraft.pipeline.settings import BeamSettings

STATISTICS = "tfx.components.statistics_gen.executor.Executor"
PUSHER = "tfx.components.pusher.executor.Executor"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], False),
        (beam_args(BeamSettings()), False),
        (["--runner=DirectRunner"], False),
        (["--runner", "FlinkRunner"], True),
        (["--runner=FlinkRunner", "--environment_type=LOOPBACK"], False),
        (["--runner=SparkRunner", "--environment_type=EXTERNAL"], True),
        (["--runner=a.b.OwnRunner"], True),
    ],
)
def test_workers_are_elsewhere(arguments: list[str], expected: bool) -> None:
    assert workers.are_elsewhere(arguments) is expected
    assert workers.run_executor(STATISTICS, arguments) is expected
    assert not workers.run_executor(PUSHER, arguments)


def test_workers_elsewhere_open_object_stores() -> None:
    here = ["--runner=DirectRunner"]
    assert workers.complete(here) == here
    completed = workers.complete(["--runner=FlinkRunner"])
    plugin = "--beam_plugin=stagecraft.components.object_store.beam_worker"
    assert completed[0] == "--runner=FlinkRunner" and plugin in completed
    assert workers.complete(completed) == completed
